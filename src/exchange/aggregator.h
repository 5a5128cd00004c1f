// The server's part of a step, for the whole model or for a region of it: sums the workers' entries in rank order and
// answers with the union of them; or with what the downlink's sparsifier chooses, and keeps the rest in a memory.
#pragma once

#include <optional>

#include "exchange/exchange.h"
#include "merge/merger.h"

namespace sparsewire {

// Which entries a server serves.
struct ServedRegion {
  int region = 0;
  int regions = 1;
  std::uint64_t dim = 0;  // entries of the region
};

class Aggregator {
 public:
  Aggregator(const ExchangePlan& plan, const ServedRegion& served);

  // Adds a worker's entries. REQUIRES: called in rank order.
  void add(const SparseVector& vector, float weight) { merger_.add(vector, weight); }

  // Replaces `frame` by the answer to all that was added; or returns the index of an entry that is not finite.
  std::optional<std::uint64_t> answer(Message& frame);

  // Ends a step: finish() after every rank got the answer; undo() if the step failed, which restores the memory.
  void finish();
  void undo();

  // The downlink's sparsifier and memory; null without a downlink.
  Sifter* sifter() noexcept { return sifter_ ? &*sifter_ : nullptr; }

 private:
  Merger merger_;
  std::optional<Sifter> sifter_;
  Codec codec_;
  SparseVector answer_;
  std::vector<float> received_;
  bool has_answered_ = false;  // by a sift that undo() would have to take back
};

// Throws UsageError if the downlink of that region cannot be made. For ranks that serve no region, so that all ranks
// find the same error.
void check_downlink(const ExchangePlan& plan, const ServedRegion& served);

}  // namespace sparsewire
