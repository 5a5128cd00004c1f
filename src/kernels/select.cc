#include "kernels/select.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "kernels/targets.h"  // must come before foreach_target.h
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/select.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace sparsewire::kernels {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using Keys = hn::CappedTag<std::uint32_t, 16>;
constexpr Keys kKeys;
constexpr std::size_t kWidth = hn::MaxLanes(kKeys);

void find_range(const std::uint32_t* keys, std::size_t n, std::uint32_t& low, std::uint32_t& high) {
  auto least = hn::Set(kKeys, ~std::uint32_t{0});
  auto most = hn::Zero(kKeys);
  std::size_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    const auto some = hn::LoadU(kKeys, keys + i);
    least = hn::Min(least, some);
    most = hn::Max(most, some);
  }
  low = hn::GetLane(hn::MinOfLanes(kKeys, least));
  high = hn::GetLane(hn::MaxOfLanes(kKeys, most));
  for (; i < n; ++i) {
    low = HWY_MIN(low, keys[i]);
    high = HWY_MAX(high, keys[i]);
  }
}

// Candidates are written to both lists, and of the two write positions each advances by those that belong there: no
// branch to mispredict. A list never has more than were read, so writing whole vectors destroys nothing. Only with
// AVX-512: elsewhere Compress() uses a table, which g++ copies to the stack in every call (AVX2: 8 times slower).
std::size_t split(std::uint32_t key, std::size_t equals, std::size_t n, std::uint32_t* indices, float* values,
                  const std::uint32_t* keys, std::uint32_t* lost_indices, float* lost_values) {
  std::size_t stay = 0;
  std::size_t lost = 0;
  const auto split_one = [&](std::size_t i) {
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
  };
  std::size_t i = 0;
#if HWY_TARGET <= HWY_AVX3
  constexpr hn::RebindToFloat<Keys> kFloats;
  const auto kth = hn::Set(kKeys, key);
  for (; i + kWidth <= n; i += kWidth) {
    const auto some = hn::LoadU(kKeys, keys + i);
    const auto above = hn::Gt(some, kth);
    const auto equal = hn::Eq(some, kth);
    const std::size_t ties = equals == 0 ? 0 : hn::CountTrue(kKeys, equal);
    if (HWY_UNLIKELY(ties > equals)) {  // only the first of these stay
      for (std::size_t j = i; j < i + kWidth; ++j) split_one(j);
      continue;
    }
    const auto wins = equals == 0 ? above : hn::Or(above, equal);
    equals -= ties;
    const auto index = hn::LoadU(kKeys, indices + i);
    const auto value = hn::LoadU(kFloats, values + i);
    const auto loses = hn::Not(wins);
    hn::StoreU(hn::Compress(index, loses), kKeys, lost_indices + lost);
    hn::StoreU(hn::Compress(value, hn::RebindMask(kFloats, loses)), kFloats, lost_values + lost);
    hn::StoreU(hn::Compress(index, wins), kKeys, indices + stay);
    hn::StoreU(hn::Compress(value, hn::RebindMask(kFloats, wins)), kFloats, values + stay);
    const std::size_t winners = hn::CountTrue(kKeys, wins);
    stay += winners;
    lost += kWidth - winners;
  }
#endif
  for (; i < n; ++i) split_one(i);
  return stay;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace sparsewire::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sparsewire::kernels {
namespace {

HWY_EXPORT(find_range);
HWY_EXPORT(split);

constexpr std::size_t kFew = 512;  // below this, clearing and scanning the counters costs more than it saves

template <class Work>
void for_each(std::span<KeyList> lists, Pool* pool, Work work) noexcept {
  if (pool == nullptr || lists.size() == 1) {
    for (KeyList& list : lists) work(list);
  } else {
    pool->run([&](int thread) { work(lists[static_cast<std::size_t>(thread)]); });
  }
}

void find_range(KeyList& list) noexcept { HWY_DYNAMIC_DISPATCH(find_range)(list.keys, list.n, list.low, list.high); }

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

std::size_t split(std::uint32_t key, std::size_t equals, std::size_t n, std::uint32_t* indices, float* values,
                  const std::uint32_t* keys, std::uint32_t* lost_indices, float* lost_values) noexcept {
  return HWY_DYNAMIC_DISPATCH(split)(key, equals, n, indices, values, keys, lost_indices, lost_values);
}

}  // namespace sparsewire::kernels
#endif  // HWY_ONCE
