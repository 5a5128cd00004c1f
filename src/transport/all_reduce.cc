// Every rank receives a slice of a block from all others, sums it in rank order, and sends the sum to all. No algorithm
// needs fewer bytes, and the messages show which rank is missing.
//
// Numbers have no frame around them, so a flipped bit would change the model, on all ranks alike. Therefore each rank
// first says the checksums of the slices that it is going to send, and behind a sum there is a tail with another one.
// Checksums are computed where the numbers are in the cache anyway.
#include "transport/all_reduce.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "core/crc32c_extend.h"
#include "sparsewire/support/crc32c.h"
#include "transport/sum.h"

namespace sparsewire {
namespace {

using Bytes = std::span<const std::byte>;

// So many bytes are summed at a time: enough to make the cost of two rounds of messages negligible, few enough to keep
// the copies small.
constexpr std::size_t kBlockBytes = std::size_t{16} << 20;
// Checksum and sum go over so many bytes in turn: few enough to stay in the cache between them.
constexpr std::size_t kCachedBytes = std::size_t{64} << 10;

// Behind the sum of a slice.
struct Tail {
  std::int32_t damaged;    // the lowest rank whose numbers this rank could not read, or -1
  std::uint32_t checksum;  // CRC-32C of the sum and of `damaged`
};

constexpr std::uint32_t kEmpty = ~0U;  // the state of a checksum of no bytes; its value is inverted at the end

template <class T>
Bytes bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

void append(std::vector<std::byte>& bytes, Bytes more) {
  const std::size_t end = bytes.size();
  bytes.resize(end + more.size());
  if (!more.empty()) std::memcpy(bytes.data() + end, more.data(), more.size());
}

template <class Number>
std::span<Number> block_of(std::span<Number> numbers, std::size_t block) {
  constexpr std::size_t kBlock = kBlockBytes / sizeof(Number);
  return numbers.subspan(block * kBlock, std::min(kBlock, numbers.size() - block * kBlock));
}

// The part of a block that a rank sums.
template <class Number>
std::span<Number> slice_of(std::span<Number> block, std::size_t rank, std::size_t ranks) {
  const std::size_t begin = block.size() * rank / ranks;
  return block.subspan(begin, block.size() * (rank + 1) / ranks - begin);
}

// Calls use(part, its place) for one part of the numbers after the other.
template <class Number, class Use>
void for_cached_parts(std::span<Number> numbers, Use use) {
  constexpr std::size_t kPart = kCachedBytes / sizeof(Number);
  for (std::size_t first = 0; first < numbers.size(); first += kPart) {
    use(numbers.subspan(first, std::min(kPart, numbers.size() - first)), first);
  }
}

std::string damage(int reader, int sender) {
  return fmt::format("rank {} cannot read the numbers of rank {}: their checksum is wrong", reader, sender);
}

}  // namespace

DamagedMessage::DamagedMessage(int reader, int sender) : TransportError(damage(reader, sender), sender) {}

void AllReduce::sum(WritableNumbers numbers) {
  if (numbers.type == NumberType::bf16) {
    sum_blocks<std::uint16_t>(numbers);
  } else {
    sum_blocks<float>(numbers);
  }
}

// Collective, before any numbers are sent: all ranks see a difference, and throw the same error.
void AllReduce::introduce(const WritableNumbers& numbers, std::span<const std::uint32_t> checksums) {
  const std::array<std::uint64_t, 2> what = {numbers.size, static_cast<std::uint64_t>(numbers.type)};
  introduction_.clear();
  append(introduction_, bytes_of(what));
  append(introduction_, std::as_bytes(checksums));
  const std::uint32_t own = crc32c(introduction_);
  append(introduction_, bytes_of(own));
  transport_.all_gather(introduction_, introductions_);

  const auto& all = introductions_;
  for (std::size_t r = 0; r < all.size(); ++r) {
    std::uint32_t theirs = 0;
    const std::size_t end = std::max(all[r].size(), sizeof theirs) - sizeof theirs;
    if (end >= sizeof what) std::memcpy(&theirs, all[r].data() + end, sizeof theirs);
    if (end < sizeof what || crc32c(Bytes(all[r]).first(end)) != theirs) {
      throw DamagedMessage(transport_.rank(), static_cast<int>(r));
    }
  }
  for (std::size_t r = 1; r < all.size(); ++r) {
    const bool is_same = std::equal(all[r].begin(), all[r].begin() + sizeof what, all[0].begin());
    if (is_same && all[r].size() == all[0].size()) continue;
    throw TransportError(
        fmt::format("rank {} called all_reduce_sum with another number of entries, or another type, than rank 0", r),
        static_cast<int>(r));
  }
}

// What the sender said of the slice that it sends to this rank.
std::uint32_t AllReduce::announced(std::size_t sender, std::size_t block) const {
  std::uint32_t checksum = 0;
  const std::size_t at = 2 * sizeof(std::uint64_t) + (block * size() + me()) * sizeof checksum;
  std::memcpy(&checksum, introductions_[sender].data() + at, sizeof checksum);
  return checksum;
}

template <class Number>
void AllReduce::sum_blocks(const WritableNumbers& given) {
  const std::span<Number> numbers(static_cast<Number*>(given.data), given.size);
  const std::size_t blocks = (numbers.size_bytes() + kBlockBytes - 1) / kBlockBytes;
  checksums_.clear();
  for (std::size_t b = 0; b < blocks; ++b) {
    for (std::size_t r = 0; r < size(); ++r) {
      checksums_.push_back(r == me() ? 0 : crc32c(std::as_bytes(slice_of(block_of(numbers, b), r, size()))));
    }
  }
  introduce(given, checksums_);
  for (std::size_t b = 0; b < blocks; ++b) sum_block(block_of(numbers, b), b);
}

template <class Number>
void AllReduce::sum_block(std::span<Number> numbers, std::size_t block) {
  const auto slice = [&](std::size_t r) { return slice_of(numbers, r, size()); };
  exchange([&](std::size_t r) { return std::as_bytes(slice(r)); },
           [&](std::size_t) { return slice(me()).size_bytes(); });
  sum_own_slice(slice(me()), block);
  exchange([&](std::size_t) { return Bytes(answer_); },
           [&](std::size_t r) { return slice(r).size_bytes() + sizeof(Tail); });
  take_sums(numbers);
}

// In place, with the checksums of what it is made of, and its own.
template <class Number>
void AllReduce::sum_own_slice(std::span<Number> own, std::size_t block) {
  const auto numbers_of = [&](std::size_t r) {
    return std::span(r == me() ? own.data() : reinterpret_cast<const Number*>(received_[r].data()), own.size());
  };
  answer_.clear();
  checksums_.assign(size(), kEmpty);  // of what came
  std::uint32_t of_sum = kEmpty;
  for_cached_parts(own, [&](std::span<Number> part, std::size_t first) {
    const auto theirs = [&](std::size_t r) { return numbers_of(r).subspan(first, part.size()); };
    for (std::size_t r = 0; r < size(); ++r) {
      if (r != me()) checksums_[r] = crc32c_extend(checksums_[r], std::as_bytes(theirs(r)));
    }
    sum_in_rank_order(
        transport_.size(), [&](int r) { return theirs(static_cast<std::size_t>(r)).data(); }, part.size(), part.data());
    of_sum = crc32c_extend(of_sum, std::as_bytes(part));
    append(answer_, std::as_bytes(part));
  });

  Tail tail{-1, 0};
  for (std::size_t r = 0; r < size() && tail.damaged < 0; ++r) {
    if (r != me() && ~checksums_[r] != announced(r, block)) tail.damaged = static_cast<int>(r);
  }
  tail.checksum = ~crc32c_extend(of_sum, bytes_of(tail.damaged));
  append(answer_, bytes_of(tail));
}

template <class Number>
void AllReduce::take_sums(std::span<Number> numbers) {
  int reader = -1;
  int damaged = -1;
  for (std::size_t r = 0; r < size(); ++r) {
    const std::span<Number> slice = slice_of(numbers, r, size());
    const std::vector<std::byte>& bytes = r == me() ? answer_ : received_[r];
    Tail tail;
    std::memcpy(&tail, bytes.data() + slice.size_bytes(), sizeof tail);
    if (r != me()) {
      std::uint32_t checksum = kEmpty;
      for_cached_parts(slice, [&](std::span<Number> part, std::size_t first) {
        const Bytes theirs = Bytes(bytes).subspan(first * sizeof(Number), part.size_bytes());
        checksum = crc32c_extend(checksum, theirs);
        std::memcpy(part.data(), theirs.data(), theirs.size());
      });
      if (~crc32c_extend(checksum, bytes_of(tail.damaged)) != tail.checksum)
        throw DamagedMessage(transport_.rank(), static_cast<int>(r));
    }
    if (tail.damaged < 0 || reader >= 0) continue;
    reader = static_cast<int>(r);
    damaged = tail.damaged;
  }
  if (reader >= 0) throw TransportError(damage(reader, damaged), damaged);
}

// Sends sent(r) to each other rank r, and receives size_of(r) bytes from it.
template <class Sent, class Size>
void AllReduce::exchange(Sent sent, Size size_of) {
  out_.clear();
  in_.clear();
  received_.resize(size());
  for (std::size_t r = 0; r < size(); ++r) {
    if (r == me()) continue;
    out_.push_back({static_cast<int>(r), sent(r)});
    in_.push_back({static_cast<int>(r), &received_[r], size_of(r)});
  }
  transport_.send_receive(out_, in_);
}

}  // namespace sparsewire
