// Deep networks that predict the next character of a text.
#include <fmt/core.h>

#include <numbers>
#include <numeric>
#include <utility>

#include "data/data_sets.h"
#include "data/random.h"
#include "problems/deep_problem.h"
#include "problems/registry.h"

namespace sparsewire::train {
namespace {

class DeepText final : public DeepProblem {
 public:
  DeepText(std::unique_ptr<Model> model, TextData data, std::size_t length, std::uint64_t batch,
           const ProblemPlace& place)
      : DeepProblem(std::move(model), std::vector<std::uint8_t>(windows(data.part(Part::train).size(), length)), batch,
                    place),
        data_(std::move(data)),
        length_(length),
        is_shifted_(batch != 0),
        is_training_(windows(data_.part(Part::train).size(), length)),
        shifts_(static_cast<std::size_t>(place.workers)) {
    for (const std::uint32_t sample : batches().training()) is_training_[sample] = true;
  }

  std::string_view metric() const noexcept override { return "bits_per_character"; }
  bool has(Part part) const noexcept override { return size_of(part) != 0; }
  std::string_view data_fingerprint() const noexcept override { return data_.fingerprint; }

 protected:
  void take(int worker, std::uint64_t step, Room& room) override {
    const std::span<const std::uint32_t> samples = batches().take(worker, step);
    std::vector<std::uint32_t>& shifts = shifts_[static_cast<std::size_t>(worker)];
    if (is_shifted_) draw_shifts(worker, step, samples, shifts);
    fill(Part::train, samples, shifts, room);
  }

  // Validation data: rows of the training text that are held back, otherwise a part of the text that is not for
  // training.
  std::size_t size_of(Part part) const noexcept override {
    if (part == Part::train) return batches().training().size();
    if (part == Part::validation && !batches().validation().empty()) return batches().validation().size();
    return windows(data_.part(part).size(), length_);
  }

  void fill(Part part, std::size_t first, std::size_t count, Room& room) const override {
    const bool is_held_back = part == Part::validation && !batches().validation().empty();
    if (part == Part::train || is_held_back) {
      const auto samples = is_held_back ? batches().validation() : batches().training();
      return fill(Part::train, samples.subspan(first, count), {}, room);
    }
    std::vector<std::uint32_t> samples(count);
    std::iota(samples.begin(), samples.end(), static_cast<std::uint32_t>(first));
    fill(part, samples, {}, room);
  }

  double metric_of(double loss, double /*share_right*/) const noexcept override { return loss / std::numbers::ln2; }

 private:
  // So that rows are not the same in every pass. A row is not moved into one that is held back.
  void draw_shifts(int worker, std::uint64_t step, std::span<const std::uint32_t> samples,
                   std::vector<std::uint32_t>& shifts) const {
    Draws draws(seed(), Use::window, worker, step);
    shifts.resize(samples.size());
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const std::uint32_t drawn = draws.below(static_cast<std::uint32_t>(length_));
      const std::size_t next = std::size_t{samples[i]} + 1;
      shifts[i] = next < is_training_.size() && is_training_[next] ? drawn : 0;
    }
  }

  void fill(Part part, std::span<const std::uint32_t> samples, std::span<const std::uint32_t> shifts,
            Room& room) const {
    room.symbols.resize(samples.size() * length_);
    room.targets.resize(room.symbols.size());
    fill_windows(data_.part(part), length_, samples, shifts, room.symbols, room.targets);
  }

  TextData data_;
  std::size_t length_;
  bool is_shifted_;                                 // not with full batches, which are the same in every step
  std::vector<bool> is_training_;                   // of each row: it is not held back
  std::vector<std::vector<std::uint32_t>> shifts_;  // one for each worker
};

}  // namespace

std::unique_ptr<Problem> make_text_problem(const NetworkInfo& network, Spec& spec, const ProblemPlace& place) {
  constexpr std::uint64_t kLargest = 1U << 16;
  const std::uint64_t batch = spec.integer("batch", 0, 1U << 24).value_or(network.batch);
  ModelSizes sizes = network.sizes;
  sizes.length = spec.integer("length", 1, kLargest).value_or(64);
  sizes.width = spec.integer("width", 1, kLargest).value_or(sizes.width);
  sizes.layers = spec.integer("layers", 1, 1024).value_or(sizes.layers);
  if (sizes.heads != 0) sizes.heads = spec.integer("heads", 1, kLargest).value_or(sizes.heads);
  spec.finish();  // before anything is loaded
  if (sizes.heads != 0 && sizes.width % sizes.heads != 0) {
    spec.fail(fmt::format("width={} is not a multiple of heads={}", sizes.width, sizes.heads));
  }
  check_model_module(place.device);  // before the data: it is the first thing that is missing
  TextData data = read_text(network.data_set, data_folder(place.data_dir));
  if (windows(data.part(Part::train).size(), sizes.length) == 0) {
    spec.fail(fmt::format("length={} is more than the text has", sizes.length));
  }
  sizes.alphabet = data.alphabet.size();
  return std::make_unique<DeepText>(make_model(network.name, sizes, place.device, place.has_tf32), std::move(data),
                                    sizes.length, batch, place);
}

}  // namespace sparsewire::train
