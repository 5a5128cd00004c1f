// The messages of a step: a frame with a trailer behind it (step_trailer.h), the same for every exchange.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <vector>

#include "core/slices.h"
#include "exchange/step_trailer.h"
#include "sparsewire/codec.h"
#include "sparsewire/pool.h"
#include "sparsewire/sparse_vector.h"

namespace sparsewire {

// The failure of a rank that caught `error`.
Failure failure_of(int rank, const std::exception& error) noexcept;

// Writes a worker's message: the frame of `sent`, unless the trailer says that it failed, and the trailer. `received`
// is as for Exchange::run. Returns the size of the frame. If encoding throws, the trailer says so, and `thrown` becomes
// the error. REQUIRES: the message has room for kMostTrailerSize bytes, so that nothing is allocated for a trailer.
std::size_t write_message(Codec& codec, const SparseVector& sent, const StepTrailer& trailer,
                          std::vector<float>& received, Message& message, std::exception_ptr& thrown,
                          Pool* pool = nullptr);

// Decodes a frame from rank `from` into a vector of dimension `dim`; or returns why that is not possible. The vector
// keeps room for some entries more: counts change a little in every step, which must not allocate each time.
std::optional<Failure> decode_from(std::span<const std::byte> frame, int from, std::uint64_t dim, SparseVector& vector,
                                   Pool* pool = nullptr);

// Decodes the frames of several ranks, each on a thread of the pool.
class FrameReader {
 public:
  FrameReader(Pool* pool, int ranks) : pool_(pool), failures_(static_cast<std::size_t>(ranks)) {}

  // decode_from() of each rank r but `left_out` (-1: none), into vectors[r] of dimension dim(r). Returns the failure of
  // the lowest rank. REQUIRES: as many frames and vectors as ranks.
  template <class Dim>
  std::optional<Failure> decode(std::span<const std::span<const std::byte>> frames, int left_out, Dim dim,
                                std::span<SparseVector> vectors) {
    for_each_item(pool_, vectors.size(), [&](std::size_t r, std::size_t) {
      const auto rank = static_cast<int>(r);
      failures_[r] = rank == left_out ? std::nullopt : decode_from(frames[r], rank, dim(rank), vectors[r]);
    });
    const auto first =
        std::find_if(failures_.begin(), failures_.end(), [](const auto& one) { return one.has_value(); });
    return first == failures_.end() ? std::nullopt : *first;
  }

 private:
  Pool* pool_;
  std::vector<std::optional<Failure>> failures_;  // of each rank
};

// Makes room for a trailer behind the frame. Here an error can still be told; append() then allocates nothing.
void make_room_for_trailer(Message& message);

// Keeps room for messages that are a little longer than these, which were received.
void keep_room(std::span<Message> messages);

// The lowest index at which a sum of finite entries is not finite; nothing if all sums are finite. The threads of
// the pool search, if there is one.
std::optional<std::uint64_t> find_overflow(const SparseVector& total, Pool* pool = nullptr);

}  // namespace sparsewire
