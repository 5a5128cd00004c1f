#include "problems/batches.h"

#include <fmt/core.h>

#include <algorithm>

#include "data/random.h"
#include "sparsewire/errors.h"

namespace sparsewire::train {
namespace {

WorkerSamples split_samples(std::span<const std::uint8_t> labels, std::span<const std::uint32_t> training,
                            const ProblemPlace& place) {
  std::vector<std::uint32_t> of_training;
  of_training.reserve(training.size());
  for (const std::uint32_t sample : training) of_training.push_back(labels[sample]);
  return make_split(place.split.empty() ? "iid" : place.split,
                    {.labels = of_training, .workers = place.workers, .seed = place.seed});
}

}  // namespace

Batches::Batches(std::span<const std::uint8_t> labels, std::uint64_t batch, const ProblemPlace& place)
    : parts_(hold_back(labels.size(), place.validation, place.seed)),
      split_(split_samples(labels, parts_.training, place)),
      batch_(batch),
      seed_(place.seed),
      passes_(static_cast<std::size_t>(place.workers)) {
  if (batch <= parts_.training.size()) return;
  throw UsageError(fmt::format("batch={} is more than the {} training samples: with batch=0 a worker takes all it has",
                               batch, parts_.training.size()));
}

// The order of a pass is drawn from (seed, worker, number), so it does not matter which steps were taken before.
void Batches::draw_pass(int worker, std::uint64_t number) {
  Pass& pass = passes_[static_cast<std::size_t>(worker)];
  if (!pass.order.empty() && pass.number == number) return;
  Draws draws(seed_, Use::pass, worker, number);
  pass.order = shuffled(static_cast<std::uint32_t>(split_.size(worker)), draws);
  for (std::uint32_t& entry : pass.order) entry = parts_.training[split_.sample(worker, entry)];
  pass.number = number;
}

std::span<const std::uint32_t> Batches::take(int worker, std::uint64_t step) {
  Pass& pass = passes_[static_cast<std::size_t>(worker)];
  const std::size_t own = split_.size(worker);
  pass.batch.clear();
  if (batch_ == 0) {
    for (std::size_t i = 0; i < own; ++i) pass.batch.push_back(parts_.training[split_.sample(worker, i)]);
    return pass.batch;
  }
  // The first entry is step*batch = number*own + at; the product itself could overflow.
  const std::uint64_t rest = step % own * batch_;
  std::uint64_t number = step / own * batch_ + rest / own;
  std::size_t at = rest % own;
  while (pass.batch.size() < batch_) {
    draw_pass(worker, number++);
    const std::size_t taken = std::min<std::size_t>(own - at, batch_ - pass.batch.size());
    const auto begin = pass.order.begin() + static_cast<std::ptrdiff_t>(at);
    pass.batch.insert(pass.batch.end(), begin, begin + static_cast<std::ptrdiff_t>(taken));
    at = 0;
  }
  return pass.batch;
}

}  // namespace sparsewire::train
