// The server's part of a step, for the whole model or for a region of it. Sums the workers' entries in rank order. The
// answer is the union of the entries; or, with a downlink, what its sparsifier chooses, and the rest stays in a memory.
#pragma once

#include <optional>

#include "codec/rounding.h"
#include "exchange/exchange.h"
#include "merge/merger.h"

namespace sparsewire {

// The entries that a server serves.
struct ServedRegion {
  int region = 0;
  int regions = 1;
  std::uint64_t dim = 0;  // entries of the region
};

class Aggregator {
 public:
  Aggregator(const ExchangePlan& plan, const ServedRegion& served);

  // Begins a step: the one before can no longer be taken back.
  void begin() noexcept { has_sifted_ = false; }
  // The entries of each worker in this step, in rank order; the caller decodes into them.
  std::span<SparseVector> inputs() noexcept { return inputs_; }

  // Takes the sum or the mean of the inputs, whose weights are `shares`, and chooses the answer; or returns the index
  // of a sum that is not finite. `lr` is the learning rate of the step.
  std::optional<std::uint64_t> choose(std::span<const float> shares, float lr);
  // Rounds the answer, and replaces `frame` by it.
  void encode(Message& frame);
  // The same without a frame, where no other rank gets the answer.
  void round();
  // Replaces `answer` by what every rank would decode.
  void read_answer(SparseVector& answer) const;

  // Ends a step, after every rank got the answer.
  void finish();
  // Takes the step back, also after finish(), until the next begin(): the memory gets the bits that it had.
  void undo();

  // The downlink's sparsifier and memory; null without a downlink.
  Sifter* sifter() noexcept { return sifter_ ? &*sifter_ : nullptr; }

 private:
  // The answer as it is before it is rounded.
  const SparseVector& chosen() const noexcept { return sifter_ ? answer_ : sum_; }

  std::uint64_t dim_;
  bool counts_senders_;  // Average::senders
  bool holds_lr_;        // the entries of the workers are lr*gradient
  Pool* pool_;
  std::vector<SparseVector> inputs_;
  Merger merger_;
  SparseVector sum_;
  std::optional<Sifter> sifter_;
  Codec codec_;
  Rounding rounding_;            // that of the codec
  SparseVector answer_;          // with a downlink; otherwise the sum is the answer
  std::vector<float> received_;  // the values of the answer as every rank decodes them, if the codec rounds
  bool has_sifted_ = false;      // undo() has to take that back
};

// Throws UsageError if the downlink of that region cannot be constructed. For ranks that serve no region, so that all
// ranks throw the same error.
void check_downlink(const ExchangePlan& plan, const ServedRegion& served);

}  // namespace sparsewire
