#include "kernels/draw.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <utility>

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

constexpr std::size_t kApart = 16;        // between the counts of two threads: no cache line has both
constexpr std::size_t kFewDraws = 32768;  // one thread sorts them faster than many would be woken

}  // namespace

// The distinct numbers among the first k draws go to drawn_, sorted; returns how many there are. On several threads
// each draws its share, and sorts what all have drawn in its range of positions.
std::size_t Drawer::draw_sorted(const Stream& stream, std::size_t k, std::size_t n, Pool* pool) {
  std::uint32_t* const drawn = drawn_.data();
  std::uint32_t* const scratch = scratch_.data();
  if (pool == nullptr || pool->size() == 1 || k < kFewDraws) {
    draw_positions(stream, 0, k, n, drawn);
    radix_sort(drawn, k, scratch, n);
    return drop_equals(drawn, k);
  }
  const auto threads = static_cast<std::size_t>(pool->size());
  const std::size_t stride = threads + kApart;
  const std::size_t range = (n + threads - 1) / threads;
  // A position's range, by a multiplication: it is off by one for some, but ascends with the position.
  const std::uint64_t factor = (std::uint64_t{1} << 32) / range;
  const auto range_of = [&](std::uint32_t position) { return static_cast<std::size_t>(position * factor >> 32); };
  const auto share = [&](std::size_t thread) { return k * thread / threads; };
  counts_.assign(threads * stride + threads + 1, 0);
  std::size_t* const begins = counts_.data() + threads * stride;  // of each range
  pool->run([&](int thread) {
    const auto t = static_cast<std::size_t>(thread);
    draw_positions(stream, share(t), share(t + 1) - share(t), n, drawn + share(t));
    for (std::size_t i = share(t); i < share(t + 1); ++i) ++counts_[t * stride + range_of(drawn[i])];
  });
  std::size_t sum = 0;
  for (std::size_t r = 0; r < threads; ++r) {
    begins[r] = sum;
    for (std::size_t t = 0; t < threads; ++t) sum += std::exchange(counts_[t * stride + r], sum);
  }
  begins[threads] = k;
  pool->run([&](int thread) {
    const auto t = static_cast<std::size_t>(thread);
    for (std::size_t i = share(t); i < share(t + 1); ++i) {
      scratch[counts_[t * stride + range_of(drawn[i])]++] = drawn[i];
    }
  });
  pool->run([&](int thread) {
    const auto t = static_cast<std::size_t>(thread);
    const std::size_t size = begins[t + 1] - begins[t];
    radix_sort(scratch + begins[t], size, drawn + begins[t], n);
    counts_[t] = drop_equals(scratch + begins[t], size);
  });
  std::size_t kept = 0;
  for (std::size_t r = 0; r < threads; ++r) {
    std::copy_n(scratch + begins[r], counts_[r], drawn + kept);
    kept += counts_[r];
  }
  return kept;
}

// Draws k numbers; then, for each duplicate, one more, until k are distinct. There are never more than k, so the result
// is the first k distinct numbers of the stream. The later draws are few and are kept in a second sorted run until the
// end.
void Drawer::distinct(const Stream& stream, std::size_t k, std::size_t n, Pool* pool) {
  std::uint32_t* const drawn = drawn_.data();
  const std::size_t first = draw_sorted(stream, k, n, pool);
  std::uint64_t next = k;  // number of the next draw
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

const std::uint32_t* Drawer::positions(const Stream& stream, std::size_t k, std::size_t n, Pool* pool) {
  drawn_.reserve(k);
  scratch_.reserve(k);
  if (2 * k <= n) {
    distinct(stream, k, n, pool);
    return drawn_.data();
  }
  const std::size_t left_out = n - k;
  distinct(stream, left_out, n, pool);
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
