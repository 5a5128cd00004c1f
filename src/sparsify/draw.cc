#include "sparsify/draw.h"

#include <algorithm>
#include <array>
#include <bit>

namespace sparsewire {
namespace {

// Least significant digit first, digits of 11 bits; `keys` ends up sorted.
void radix_sort(std::uint32_t* keys, std::size_t n, std::uint32_t* scratch, std::size_t limit) {
  constexpr int kBits = 11;
  std::uint32_t* from = keys;
  std::uint32_t* to = scratch;
  for (int shift = 0; shift < static_cast<int>(std::bit_width(limit)); shift += kBits) {
    std::array<std::uint32_t, (std::size_t{1} << kBits) + 1> start{};
    constexpr std::uint32_t kDigit = (1U << kBits) - 1;
    for (std::size_t i = 0; i < n; ++i) ++start[(from[i] >> shift & kDigit) + 1];
    for (std::size_t d = 1; d < start.size(); ++d) start[d] += start[d - 1];
    for (std::size_t i = 0; i < n; ++i) to[start[from[i] >> shift & kDigit]++] = from[i];
    std::swap(from, to);
  }
  if (from != keys) std::copy_n(from, n, keys);
}

std::uint32_t position_of(std::uint32_t low, std::uint32_t high, std::size_t n) {
  const std::uint64_t draw = std::uint64_t{high} << 32 | low;
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint32_t>(static_cast<Wide>(draw) * n >> 64);
}

}  // namespace

// Draws as many as are missing, sorts, drops what came twice, and draws for those again: at no time more than k distinct
// ones, so it ends with the first k distinct ones.
void Draw::distinct(const Stream& stream, std::size_t k, std::size_t n) {
  std::uint64_t next = 0;  // number of the draw; two to a block
  std::size_t have = 0;
  while (have < k) {
    for (std::size_t i = have; i < k; ++i, ++next) {
      const PhiloxBlock block = stream.block(static_cast<std::uint32_t>(next / 2));
      drawn_[i] = next % 2 == 0 ? position_of(block[0], block[1], n) : position_of(block[2], block[3], n);
    }
    radix_sort(drawn_.data() + have, k - have, scratch_.data(), n);
    merge(have, k);
    have = static_cast<std::size_t>(std::unique(drawn_.data(), drawn_.data() + k) - drawn_.data());
  }
}

// Joins the sorted runs [0, middle) and [middle, end), from the back; std::inplace_merge would allocate.
void Draw::merge(std::size_t middle, std::size_t end) {
  std::size_t later = end - middle;
  std::copy_n(drawn_.data() + middle, later, scratch_.data());
  for (std::size_t to = end; later > 0; --to) {
    const bool from_later = middle == 0 || drawn_[middle - 1] <= scratch_[later - 1];
    drawn_[to - 1] = from_later ? scratch_[--later] : drawn_[--middle];
  }
}

const std::uint32_t* Draw::positions(const Stream& stream, std::size_t k, std::size_t n) {
  drawn_.reserve(k);
  scratch_.reserve(k);
  if (2 * k <= n) {
    distinct(stream, k, n);
    return drawn_.data();
  }
  const std::size_t left_out = n - k;
  drawn_.reserve(std::max(k, left_out));
  distinct(stream, left_out, n);
  std::size_t skip = 0;
  std::size_t out = 0;
  for (std::size_t position = 0; position < n; ++position) {
    if (skip < left_out && drawn_[skip] == position) {
      ++skip;
    } else {
      scratch_[out++] = static_cast<std::uint32_t>(position);
    }
  }
  return scratch_.data();
}

}  // namespace sparsewire
