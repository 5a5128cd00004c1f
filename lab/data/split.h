// How the training samples are divided among the workers. Each way is one file and one line in splits.def.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sparsewire/spec.h"

namespace sparsewire::train {

// The samples of each worker, as numbers from 0.
class WorkerSamples {
 public:
  // Worker n has samples n*offset, n*offset + stride, ... of `samples`.
  WorkerSamples(std::size_t samples, std::size_t offset, std::size_t stride)
      : samples_(samples), offset_(offset), stride_(stride) {}
  explicit WorkerSamples(std::vector<std::vector<std::uint32_t>> lists) : lists_(std::move(lists)) {}

  std::size_t size(int worker) const noexcept {
    if (!lists_.empty()) return list(worker).size();
    const std::size_t first = first_of(worker);
    return first >= samples_ ? 0 : (samples_ - first + stride_ - 1) / stride_;
  }
  // Sample i of the worker. REQUIRES: i < size(worker).
  std::size_t sample(int worker, std::size_t i) const noexcept {
    return lists_.empty() ? first_of(worker) + stride_ * i : list(worker)[i];
  }

 private:
  std::size_t first_of(int worker) const noexcept { return static_cast<std::size_t>(worker) * offset_; }
  const std::vector<std::uint32_t>& list(int worker) const noexcept { return lists_[static_cast<std::size_t>(worker)]; }

  std::size_t samples_ = 0;
  std::size_t offset_ = 0;
  std::size_t stride_ = 1;
  std::vector<std::vector<std::uint32_t>> lists_;  // empty: offset and stride say it
};

// Everything that a split may depend on besides its spec.
struct SplitContext {
  std::span<const std::uint32_t> labels;  // of the training samples, from 0
  int workers = 1;
  std::uint64_t seed = 0;
};

// Makes a split from `name:key=value,key=value`. Throws UsageError, also if a worker would get no sample.
WorkerSamples make_split(std::string_view spec, const SplitContext& context);

struct SplitInfo {
  std::string_view name;
  std::string_view summary;  // in a few words
  std::string_view example;  // for four workers
  bool weights_by_size;      // logreg weights a worker by its samples, unless it is given weights
};
// Every split there is.
std::span<const SplitInfo> splits() noexcept;
// The one that the spec names. Throws UsageError.
const SplitInfo& split_info(std::string_view spec);

#define SPLIT(name, summary, example, weights_by_size) \
  WorkerSamples split_##name(Spec& spec, const SplitContext& context);
#include "data/splits.def"
#undef SPLIT

// How many of `samples` each worker gets: equally many, or in proportion to the key `sizes=4/2/1/1`, which has a number
// for each worker. The sum is `samples`. Reads the key. Throws UsageError.
std::vector<std::size_t> read_sizes(Spec& spec, std::size_t samples, int workers);

}  // namespace sparsewire::train
