#include "kernels/draw.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

#include "kernels/random.h"

namespace sparsewire::kernels {
namespace {

constexpr int kDigitBits = 13;  // 25 bits in two rounds; 8192 counters just fit the L1 cache
constexpr std::size_t kDigits = std::size_t{1} << kDigitBits;

// Sorts `keys`, which are all below `limit`, least significant digit first.
void radix_sort(std::uint32_t* keys, std::size_t n, std::uint32_t* scratch, std::size_t limit) {
  if (n < kDigits / 16) {  // too few to pay for clearing the counters
    std::sort(keys, keys + n);
    return;
  }
  std::uint32_t* from = keys;
  std::uint32_t* to = scratch;
  for (int shift = 0; shift < static_cast<int>(std::bit_width(limit - 1)); shift += kDigitBits) {
    std::array<std::uint32_t, kDigits> start{};
    for (std::size_t i = 0; i < n; ++i) ++start[from[i] >> shift & (kDigits - 1)];
    std::exclusive_scan(start.begin(), start.end(), start.begin(), 0U);
    for (std::size_t i = 0; i < n; ++i) to[start[from[i] >> shift & (kDigits - 1)]++] = from[i];
    std::swap(from, to);
  }
  if (from != keys) std::copy_n(from, n, keys);
}

// Removes duplicates from a sorted list; returns how many entries are left. Every entry is written, and the write
// position advances or not: there is no branch to mispredict.
std::size_t drop_equals(std::uint32_t* sorted, std::size_t n) {
  std::size_t kept = std::min<std::size_t>(n, 1);
  for (std::size_t i = 1; i < n; ++i) {
    const bool differs = sorted[i] != sorted[i - 1];
    sorted[kept] = sorted[i];
    kept += differs ? 1 : 0;
  }
  return kept;
}

// Removes from a sorted list what is also in the sorted list `known`; returns how many entries are left.
std::size_t drop_known(std::uint32_t* sorted, std::size_t n, const std::uint32_t* known, std::size_t known_size) {
  const std::uint32_t* const end = known + known_size;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < n; ++i) {
    known = std::lower_bound(known, end, sorted[i]);
    if (known == end || *known != sorted[i]) sorted[kept++] = sorted[i];
  }
  return kept;
}

// Merges the sorted runs [0, middle) and [middle, end), starting at the end; std::inplace_merge would allocate.
void merge(std::uint32_t* runs, std::size_t middle, std::size_t end, std::uint32_t* scratch) {
  std::size_t later = end - middle;
  std::copy_n(runs + middle, later, scratch);
  for (std::size_t to = end; later > 0; --to) {
    const bool from_later = middle == 0 || runs[middle - 1] < scratch[later - 1];
    runs[to - 1] = from_later ? scratch[--later] : runs[--middle];
  }
}

}  // namespace

// Draws k numbers; then, for each duplicate, one more, until k are distinct. There are never more than k, so the result
// is the first k distinct numbers of the stream. The later draws are few and are kept in a second sorted run until the
// end.
void Drawer::distinct(const Stream& stream, std::size_t k, std::size_t n) {
  std::uint32_t* const drawn = drawn_.data();
  draw_positions(stream, 0, k, n, drawn);
  std::uint64_t next = k;  // number of the next draw
  radix_sort(drawn, k, scratch_.data(), n);
  const std::size_t first = drop_equals(drawn, k);
  std::size_t have = first;
  while (have < k) {
    std::uint32_t* const batch = drawn + have;
    draw_positions(stream, next, k - have, n, batch);
    next += k - have;
    radix_sort(batch, k - have, scratch_.data(), n);
    std::size_t size = drop_equals(batch, k - have);
    size = drop_known(batch, size, drawn, first);
    size = drop_known(batch, size, drawn + first, have - first);
    merge(drawn + first, have - first, have - first + size, scratch_.data());
    have += size;
  }
  merge(drawn, first, k, scratch_.data());
}

const std::uint32_t* Drawer::positions(const Stream& stream, std::size_t k, std::size_t n) {
  drawn_.reserve(k);
  scratch_.reserve(k);
  if (2 * k <= n) {
    distinct(stream, k, n);
    return drawn_.data();
  }
  const std::size_t left_out = n - k;
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

}  // namespace sparsewire::kernels
