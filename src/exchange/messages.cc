#include "exchange/messages.h"

#include <algorithm>
#include <atomic>
#include <cmath>

namespace sparsewire {
namespace {

// Decoders and transports allocate exactly what they need. `most` is the largest size that the items can have.
template <class T>
void reserve_more(std::vector<T>& items, std::uint64_t most) {
  const std::size_t size = items.size();
  if (size == 0 || size == most || items.capacity() >= size + size / 16 + 4) return;
  items.reserve(std::min<std::size_t>(size + size / 2 + 64, most));
}

}  // namespace

Failure failure_of(int rank, const std::exception& error) noexcept {
  return {Failure::Kind::error, rank, 0, Cause(error.what())};
}

std::size_t write_message(Codec& codec, const SparseVector& sent, const StepTrailer& trailer,
                          std::vector<float>& received, Message& message, std::exception_ptr& thrown, Pool* pool) {
  received.clear();
  if (trailer.failure) {
    message.clear();
    append(message, trailer);
    return 0;
  }
  try {
    codec.encode(sent, message, codec.rounds() ? &received : nullptr, pool);
    const std::size_t frame_size = message.size();
    append(message, trailer);
    return frame_size;
  } catch (const std::exception& error) {
    thrown = std::current_exception();
    StepTrailer failed = trailer;
    failed.failure = failure_of(trailer.rank, error);
    received.clear();
    message.clear();
    append(message, failed);
    return 0;
  }
}

std::optional<Failure> decode_from(std::span<const std::byte> frame, int from, std::uint64_t dim, SparseVector& vector,
                                   Pool* pool) {
  const DecodeStatus status = decode(frame, vector, pool);
  if (status != DecodeStatus::ok) {
    return Failure{Failure::Kind::unreadable, from, static_cast<std::uint64_t>(status), {}, true};
  }
  if (vector.dim != dim) return Failure{Failure::Kind::unreadable, from, Failure::kOtherDim, {}, true};
  reserve_more(vector.indices, dim);
  reserve_more(vector.values, dim);
  return std::nullopt;
}

void make_room_for_trailer(Message& message) {
  if (message.capacity() - message.size() >= kMostTrailerSize) return;
  message.reserve(message.size() + message.size() / 4 + kMostTrailerSize);
}

void keep_room(std::span<Message> messages) {
  for (Message& message : messages) reserve_more(message, ~std::uint64_t{0});
}

std::optional<std::uint64_t> find_overflow(const SparseVector& total, Pool* pool) {
  std::atomic<bool> finite = true;
  for_each_slice(pool, total.size(), 8192, [&](std::size_t begin, std::size_t end, int) {
    bool all = true;
    for (std::size_t i = begin; i < end; ++i) all &= std::isfinite(total.values[i]);
    if (!all) finite = false;
  });
  if (finite) return std::nullopt;
  const auto bad = std::find_if(total.values.begin(), total.values.end(), [](float v) { return !std::isfinite(v); });
  return total.index(static_cast<std::size_t>(bad - total.values.begin()));
}

}  // namespace sparsewire
