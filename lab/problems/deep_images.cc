// Deep networks that classify images.
#include <fmt/core.h>

#include <utility>

#include "data/data_sets.h"
#include "problems/deep_problem.h"
#include "problems/registry.h"

namespace sparsewire::train {
namespace {

constexpr std::uint64_t kTrainingToTest = 5;  // as CIFAR-10 has: of the first samples=5000, 1000 test samples
constexpr int kPadding = 4;  // pixels by which images are shifted at most: the usual number for CIFAR-10

class DeepImages final : public DeepProblem {
 public:
  DeepImages(std::unique_ptr<Model> model, ImageData data, const Normalisation& normalisation, std::uint64_t batch,
             bool augment, const ProblemPlace& place)
      : DeepProblem(std::move(model), data.train.labels, batch, place),
        data_(std::move(data)),
        filler_(normalisation),
        is_augmented_(augment),
        changes_(static_cast<std::size_t>(place.workers)) {}

  std::string_view metric() const noexcept override { return "accuracy"; }
  bool has(Part part) const noexcept override { return size_of(part) != 0; }
  std::string_view data_fingerprint() const noexcept override { return data_.fingerprint; }
  std::string_view test_fingerprint() const noexcept override { return data_.test_fingerprint; }

 protected:
  void take(int worker, std::uint64_t step, Room& room) override {
    const std::span<const std::uint32_t> samples = batches().take(worker, step);
    std::vector<Change>& changes = changes_[static_cast<std::size_t>(worker)];
    if (is_augmented_) draw_changes(seed(), worker, step, samples.size(), kPadding, changes);
    fill(data_.train, samples, changes, room);
  }

  std::size_t size_of(Part part) const noexcept override {
    return part == Part::test    ? data_.test.size()
           : part == Part::train ? batches().training().size()
                                 : batches().validation().size();
  }

  void fill(Part part, std::size_t first, std::size_t count, Room& room) const override {
    std::vector<std::uint32_t> samples(count);
    for (std::size_t i = 0; i < count; ++i) {
      samples[i] = part == Part::test    ? static_cast<std::uint32_t>(first + i)
                   : part == Part::train ? batches().training()[first + i]
                                         : batches().validation()[first + i];
    }
    fill(part == Part::test ? data_.test : data_.train, samples, {}, room);
  }

  double metric_of(double /*loss*/, double share_right) const noexcept override { return share_right; }

 private:
  void fill(const ImageSet& images, std::span<const std::uint32_t> samples, std::span<const Change> changes,
            Room& room) const {
    room.pixels.resize(samples.size() * images.image_size());
    filler_.fill(images, samples, changes, room.pixels);
    room.targets.clear();
    for (const std::uint32_t sample : samples) room.targets.push_back(images.labels[sample]);
  }

  ImageData data_;
  PixelFiller filler_;
  bool is_augmented_;
  std::vector<std::vector<Change>> changes_;  // one for each worker
};

}  // namespace

std::unique_ptr<Problem> make_images_problem(const NetworkInfo& network, Spec& spec, const ProblemPlace& place) {
  const DataSetInfo& info = data_set_info(network.data_set);
  const std::uint64_t batch = spec.integer("batch", 0, 1U << 24).value_or(network.batch);
  const bool augment = info.is_augmented && spec.flag("augment", true);
  const std::uint64_t samples = spec.integer("samples", 1, 1U << 24).value_or(0);
  spec.finish();  // before anything is loaded
  auto model = make_model(network.name, {}, place.device,
                          place.has_tf32);  // before the data: it is the first thing that is missing
  ImageData data = read_images(info.name, data_folder(place.data_dir));
  const ImageSet& images = data.train;
  if (images.channels != info.channels || images.height != info.size || images.width != info.size) {
    spec.fail(fmt::format("is for images of {0}x{0} pixels, and {1} here has images of {2}x{3} pixels", info.size,
                          info.name, images.height, images.width));
  }
  if (samples > images.size()) {
    spec.fail(fmt::format("samples={} is more than the {} training images of {}", samples, images.size(), info.name));
  }
  if (samples != 0) {
    data.train.cut_to(samples);
    data.test.cut_to((samples + kTrainingToTest - 1) / kTrainingToTest);
  }
  return std::make_unique<DeepImages>(std::move(model), std::move(data), info.normalisation, batch, augment, place);
}

}  // namespace sparsewire::train
