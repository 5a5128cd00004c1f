#include "kernels/select.h"

#include <algorithm>
#include <bit>
#include <functional>

namespace sparsewire::kernels {
namespace {

constexpr std::size_t kFew = 512;  // below this, clearing and scanning the counters costs more than it saves

template <class Work>
void for_each(std::span<KeyList> lists, Pool* pool, Work work) noexcept {
  if (pool == nullptr || lists.size() == 1) {
    for (KeyList& list : lists) work(list);
  } else {
    pool->run([&](int thread) { work(lists[static_cast<std::size_t>(thread)]); });
  }
}

void find_range(KeyList& list) noexcept {
  std::uint32_t low = ~std::uint32_t{0};
  std::uint32_t high = 0;
  for (std::size_t i = 0; i < list.n; ++i) {
    low = std::min(low, list.keys[i]);
    high = std::max(high, list.keys[i]);
  }
  list.low = low;
  list.high = high;
}

// Leaves only the keys in [low, high].
void narrow(KeyList& list, std::uint32_t low, std::uint32_t high) noexcept {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < list.left_count; ++i) {
    const std::uint32_t key = list.left[i];  // `scratch` and `left` may be the same array
    list.scratch[kept] = key;
    kept += static_cast<std::size_t>(key - low <= high - low);
  }
  list.left = list.scratch;
  list.left_count = kept;
}

void count_digits(KeyList& list, std::uint32_t low, int shift) noexcept {
  list.counts.fill(0);
  for (std::size_t i = 0; i < list.left_count; ++i) ++list.counts[(list.left[i] - low) >> shift];
}

// The k-th of the at most kFew keys that are left.
std::uint32_t kth_of_few(std::span<const KeyList> lists, std::size_t k) noexcept {
  std::array<std::uint32_t, kFew> keys{};
  std::uint32_t* end = keys.data();
  for (const KeyList& list : lists) end = std::copy_n(list.left, list.left_count, end);
  std::nth_element(keys.data(), keys.data() + (k - 1), end, std::greater<>());
  return keys[k - 1];
}

}  // namespace

// Radix select from the top digit of (key - lowest key): each round leaves the keys of one bucket only. A thread counts
// the digits of its own list; the sums of these counts say which bucket has the k-th.
Kth kth_largest(std::span<KeyList> lists, std::size_t k, Pool* pool) noexcept {
  std::size_t left = 0;
  for (KeyList& list : lists) {
    list.above = 0;
    list.left = list.keys;
    list.left_count = list.equal = list.n;
    left += list.n;
  }
  std::size_t above = 0;  // keys that are known to be larger than all that are left
  std::uint32_t low = ~std::uint32_t{0};
  std::uint32_t high = 0;
  if (left > kFew) {
    for_each(lists, pool, find_range);
    for (const KeyList& list : lists) {
      low = std::min(low, list.low);
      high = std::max(high, list.high);
    }
  }
  bool is_narrow = true;  // the lists have no keys outside of [low, high]
  while (left > kFew && low < high) {
    const int shift = std::max(0, static_cast<int>(std::bit_width(high - low)) - kDigitBits);
    for_each(lists, pool, [&](KeyList& list) {
      if (!is_narrow) narrow(list, low, high);
      count_digits(list, low, shift);
    });
    std::array<std::uint32_t, std::size_t{1} << kDigitBits> counts{};
    for (const KeyList& list : lists) {
      for (std::size_t d = 0; d < counts.size(); ++d) counts[d] += list.counts[d];
    }
    std::size_t bucket = (high - low) >> shift;
    for (; above + counts[bucket] < k; --bucket) above += counts[bucket];
    left = counts[bucket];
    for (KeyList& list : lists) {
      for (std::size_t d = bucket + 1; d < counts.size(); ++d) list.above += list.counts[d];
      list.equal = list.counts[bucket];
    }
    low += static_cast<std::uint32_t>(bucket) << shift;
    high = low + ((std::uint32_t{1} << shift) - 1);
    is_narrow = false;
  }
  if (left > kFew) return {low, above};
  if (!is_narrow) {
    for_each(lists, pool, [&](KeyList& list) { narrow(list, low, high); });
  }
  const std::uint32_t key = kth_of_few(lists, k - above);
  for (KeyList& list : lists) {
    const std::uint32_t* const end = list.left + list.left_count;
    const auto larger = static_cast<std::size_t>(std::count_if(list.left, end, [&](auto x) { return x > key; }));
    list.above += larger;
    list.equal = static_cast<std::size_t>(std::count(list.left, end, key));
    above += larger;
  }
  return {key, above};
}

Kth kth_largest(const std::uint32_t* keys, std::size_t n, std::size_t k, std::uint32_t* scratch) noexcept {
  KeyList list;
  list.keys = keys;
  list.n = n;
  list.scratch = scratch;
  return kth_largest({&list, 1}, k, nullptr);
}

// Every candidate is written to both lists, and only one of the two write positions advances: no branch to mispredict.
std::size_t split(std::uint32_t key, std::size_t equals, std::size_t n, std::uint32_t* indices, float* values,
                  const std::uint32_t* keys, std::uint32_t* lost_indices, float* lost_values) noexcept {
  std::size_t stay = 0;
  std::size_t lost = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t index = indices[i];
    const float value = values[i];
    const std::size_t equal = keys[i] == key ? 1 : 0;
    const std::size_t wins = keys[i] > key || (equal != 0 && equals != 0) ? 1 : 0;
    equals -= equal & wins;
    lost_indices[lost] = index;
    lost_values[lost] = value;
    lost += 1 - wins;
    indices[stay] = index;
    values[stay] = value;
    stay += wins;
  }
  return stay;
}

}  // namespace sparsewire::kernels
