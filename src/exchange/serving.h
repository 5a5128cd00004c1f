// What a server does with the frames it gets, be it of the whole model or of a region: sum them in rank order, and
// answer with the union, or with what its downlink chooses while the rest waits in its memory.
#pragma once

#include <optional>

#include "exchange/exchange.h"
#include "merge/merger.h"

namespace sparsewire {

// Where a server works.
struct ServedRegion {
  int region = 0;
  int regions = 1;
  std::uint64_t dim = 0;  // its entries
};

class Serving {
 public:
  Serving(const ExchangePlan& plan, const ServedRegion& served);

  // Adds a worker's entries. In rank order.
  void add(const SparseVector& vector, float weight) { merger_.add(vector, weight); }

  // Replaces `frame` by the answer to all that was added; or returns the index of an entry that is not finite.
  std::optional<std::uint64_t> answer(Message& frame);

  // After everybody heard the answer; or, if the step failed elsewhere, instead: all is as before the round.
  void finish();
  void undo();

  Sifter* memory() noexcept { return sifter_ ? &*sifter_ : nullptr; }

 private:
  Merger merger_;
  std::optional<Sifter> sifter_;
  Codec codec_;
  SparseVector answer_;
  std::vector<float> received_;
  bool has_answered_ = false;  // by a sift that undo() would have to take back
};

// Throws UsageError if the downlink of that region cannot be made: for ranks that serve none, because all shall find
// the same fault.
void check_downlink(const ExchangePlan& plan, const ServedRegion& served);

// Where the sum of finite entries is not finite; nothing if it is everywhere.
std::optional<std::uint64_t> find_overflow(const SparseVector& total) noexcept;

// A rank's message: the frame of `sent`, unless it failed, and its word. `received` as Exchange::run gives it. Returns
// the size of the frame.
std::size_t write_message(Codec& codec, const SparseVector& sent, const Word& mine, std::vector<float>& received,
                          Message& message);

// The vector of a frame from rank `from`; or why there is none of `dim` entries.
std::optional<Failure> decode_from(std::span<const std::byte> frame, int from, std::uint64_t dim, SparseVector& vector);

}  // namespace sparsewire
