// A classifier on synthetic data: each class is a few Gaussian clusters in a small space, which a random network maps
// to the inputs, so the classes cannot be separated linearly. The test data are more samples of the same kind.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/hold_back.h"
#include "data/random.h"
#include "data/split.h"
#include "networks/network.h"
#include "problems/problem.h"
#include "problems/registry.h"
#include "sparsewire/errors.h"
#include "sparsewire/support/portable_math.h"
#include "text/list.h"
#include "text/number.h"

namespace sparsewire::train {
namespace {

struct MlpShape {
  std::vector<std::size_t> widths{784, 64, 10};  // inputs, hidden layers, classes
  std::uint64_t samples = 6000;                  // for training
  std::uint64_t held_back = 1000;                // for testing
  std::uint64_t batch = 32;                      // samples of a worker in a step; 0: all that it has
};

// Generates samples.
class Source {
 public:
  Source(std::size_t inputs, std::size_t classes, std::uint64_t seed)
      : inputs_(inputs), classes_(classes), seed_(seed), centres_(classes * kClusters * kSpace) {
    Draws draws(seed, Use::data, 0);
    for (double& entry : centres_) entry = kApart * draws.normal();
    inner_.resize(kSpace * kHidden);
    for (double& entry : inner_) entry = draws.normal();
    outer_.resize(kHidden * inputs);
    for (double& entry : outer_) entry = draws.normal() / std::sqrt(double{kHidden});
  }

  // Samples first ... first+count-1.
  Batch<float> draw(std::uint64_t first, std::uint64_t count) const {
    Batch<float> batch;
    batch.inputs.reserve(count * inputs_);
    for (std::uint64_t sample = first; sample < first + count; ++sample) append(sample, batch);
    return batch;
  }

 private:
  static constexpr std::size_t kSpace = 8;     // dimensions of the points
  static constexpr std::size_t kClusters = 6;  // of each class
  static constexpr std::size_t kHidden = 32;   // units of the random network
  static constexpr double kApart = 2.5;        // of the centres, in standard deviations of a cluster
  static constexpr double kNoise = 0.3;        // of each input

  void append(std::uint64_t sample, Batch<float>& batch) const {
    Draws draws(seed_, Use::data, 1, sample);
    const auto which = draws.below(static_cast<std::uint32_t>(classes_));
    const double* centre = centres_.data() + (which * kClusters + draws.below(kClusters)) * kSpace;
    std::vector<double> hidden(kHidden);
    for (std::size_t i = 0; i < kSpace; ++i) {
      const double entry = centre[i] + draws.normal();
      for (std::size_t unit = 0; unit < kHidden; ++unit) hidden[unit] += entry * inner_[i * kHidden + unit];
    }
    std::vector<double> inputs(inputs_);
    for (double& input : inputs) input = kNoise * draws.normal();
    for (std::size_t unit = 0; unit < kHidden; ++unit) {
      const double output = std::copysign(portable_tanh(std::abs(hidden[unit]) / 2), hidden[unit]);
      for (std::size_t i = 0; i < inputs_; ++i) inputs[i] += output * outer_[unit * inputs_ + i];
    }
    batch.classes.push_back(which);
    for (const double input : inputs) batch.inputs.push_back(static_cast<float>(input));
  }

  std::size_t inputs_;
  std::size_t classes_;
  std::uint64_t seed_;
  std::vector<double> centres_;
  std::vector<double> inner_;
  std::vector<double> outer_;
};

void append_row(const Batch<float>& from, std::size_t row, std::size_t inputs, Batch<float>& to) {
  const auto begin = from.inputs.begin() + static_cast<std::ptrdiff_t>(row * inputs);
  to.inputs.insert(to.inputs.end(), begin, begin + static_cast<std::ptrdiff_t>(inputs));
  to.classes.push_back(from.classes[row]);
}

class Mlp final : public Problem {
 public:
  Mlp(const MlpShape& shape, const ProblemPlace& place)
      : network_(shape.widths),
        seed_(place.seed),
        batch_(shape.batch),
        parts_(hold_back(shape.samples, place.validation, place.seed)) {
    const Source source(shape.widths.front(), shape.widths.back(), place.seed);
    samples_ = source.draw(0, shape.samples);
    test_ = source.draw(shape.samples, shape.held_back);
    std::vector<std::uint32_t> labels;
    for (const std::uint32_t sample : parts_.training) labels.push_back(samples_.classes[sample]);
    split_.emplace(make_split(place.split.empty() ? "round_robin" : place.split,
                              {.labels = labels, .workers = place.workers, .seed = place.seed}));
    rooms_.resize(static_cast<std::size_t>(place.workers) + 1);
  }

  const Layout& layout() const noexcept override { return network_.layout(); }
  std::string_view metric() const noexcept override { return "accuracy"; }
  bool has(Part part) const noexcept override { return part != Part::validation || !parts_.validation.empty(); }
  std::uint64_t samples_of(int worker) const noexcept override { return split_->size(worker); }

  // Uniform in +-1/sqrt(inputs of the layer).
  void initial_weights(std::span<float> weights) const override {
    Draws draws(seed_, Use::weights);
    const auto& tensors = layout().tensors();
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const double most = 1 / std::sqrt(static_cast<double>(network_.widths()[i / 2]));
      for (float& weight : weights.subspan(tensors[i].begin, tensors[i].size)) {
        weight = static_cast<float>(most * (2 * draws.uniform() - 1));
      }
    }
  }

  double gradient(int worker, std::uint64_t step, std::span<const float> weights, std::span<float> gradient) override {
    Room& room = rooms_[static_cast<std::size_t>(worker)];
    take_batch(worker, step, room.batch);
    return network_.gradient(room.batch, weights, gradient, room.layers);
  }

  Score evaluate(Part part, std::span<const float> weights) override {
    const std::size_t all = part == Part::test    ? test_.classes.size()
                            : part == Part::train ? parts_.training.size()
                                                  : parts_.validation.size();
    Room& room = rooms_.back();
    double loss = 0;
    std::size_t right = 0;
    for (std::size_t first = 0; first < all; first += kPiece) {
      room.batch.inputs.clear();
      room.batch.classes.clear();
      for (std::size_t i = first; i < std::min(first + kPiece, all); ++i) {
        const Batch<float>& from = part == Part::test ? test_ : samples_;
        const std::size_t row = part == Part::test    ? i
                                : part == Part::train ? parts_.training[i]
                                                      : parts_.validation[i];
        append_row(from, row, network_.widths().front(), room.batch);
      }
      const auto score = network_.score(room.batch, weights, room.layers);
      loss += score.loss;
      right += score.right;
    }
    loss /= static_cast<double>(all);
    return {.loss = loss, .objective = loss, .metric = static_cast<double>(right) / static_cast<double>(all)};
  }

 private:
  static constexpr std::size_t kPiece = 64;  // samples evaluated at a time, so that their outputs stay in the cache

  struct Room {
    Batch<float> batch;
    Network<float>::Room layers;
  };

  // Batches are drawn with replacement from the worker's samples.
  void take_batch(int worker, std::uint64_t step, Batch<float>& batch) const {
    const std::size_t own = split_->size(worker);
    batch.inputs.clear();
    batch.classes.clear();
    Draws draws(seed_, Use::batch, worker, step);
    for (std::size_t i = 0; i < (batch_ == 0 ? own : batch_); ++i) {
      const std::size_t chosen = batch_ == 0 ? i : draws.below(static_cast<std::uint32_t>(own));
      append_row(samples_, parts_.training[split_->sample(worker, chosen)], network_.widths().front(), batch);
    }
  }

  Network<float> network_;
  std::uint64_t seed_;
  std::uint64_t batch_;
  HeldBack parts_;        // of samples_
  Batch<float> samples_;  // for training and validation
  Batch<float> test_;
  std::optional<WorkerSamples> split_;  // of parts_.training
  std::vector<Room> rooms_;             // one for each worker, and the last one for evaluate()
};

constexpr std::size_t kWidest = 65536;

// "64x32": two hidden layers; "0": none.
std::vector<std::size_t> parse_hidden(const Spec& spec, std::string_view written) {
  std::vector<std::size_t> widths;
  if (written == "0") return widths;
  for (const std::string& item : split_list(written, 'x')) {
    const auto width = parse_number<std::size_t>(item);
    if (!width || *width < 1 || *width > kWidest) {
      spec.fail(fmt::format("hidden={} is neither 0 nor widths in [1, {}] like 64 or 64x32", written, kWidest));
    }
    widths.push_back(*width);
  }
  return widths;
}

}  // namespace

std::unique_ptr<Problem> make_mlp_problem(Spec& spec, const ProblemPlace& place) {
  MlpShape shape;
  shape.widths = {spec.integer("inputs", 1, kWidest).value_or(784)};
  for (const std::size_t width : parse_hidden(spec, spec.word("hidden").value_or("64"))) shape.widths.push_back(width);
  shape.widths.push_back(spec.integer("classes", 2, kWidest).value_or(10));
  shape.samples = spec.integer("samples", 1, 1U << 24).value_or(shape.samples);
  shape.held_back = spec.integer("held_back", 1, 1U << 24).value_or(shape.held_back);
  const auto batch = spec.integer("batch", 0, 1U << 24);
  if (batch.value_or(0) > shape.samples) {
    spec.fail(fmt::format("batch={} is more than the {} training samples: with batch=0 a worker takes all it has",
                          *batch, shape.samples));
  }
  shape.batch = batch.value_or(shape.batch);
  spec.finish();  // before the data are generated
  return std::make_unique<Mlp>(shape, place);
}

}  // namespace sparsewire::train
