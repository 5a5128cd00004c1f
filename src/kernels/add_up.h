// Indices from the gaps between them. For kernels that are compiled for each SIMD level: it is included once for each,
// so it has no #pragma once.
#if defined(SPARSEWIRE_KERNELS_ADD_UP_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SPARSEWIRE_KERNELS_ADD_UP_H
#undef SPARSEWIRE_KERNELS_ADD_UP_H
#else
#define SPARSEWIRE_KERNELS_ADD_UP_H
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <span>

HWY_BEFORE_NAMESPACE();
namespace sparsewire::kernels {
namespace HWY_NAMESPACE {
namespace {

// Sums of lanes: `up_to` of each lane and all before it, `all` of all, in every lane.
template <class V>
struct LaneSums {
  V up_to;
  V all;
};

#if HWY_TARGET == HWY_SCALAR
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE LaneSums<V> add_up_lanes(D /*d*/, V v) {
  return {v, v};
}
#else
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE LaneSums<V> add_up_lanes(D d, V v) {
  namespace hn = hwy::HWY_NAMESPACE;
  v = hn::Add(v, hn::ShiftLeftLanes<1>(d, v));  // these work on four lanes each
  v = hn::Add(v, hn::ShiftLeftLanes<2>(d, v));
  if constexpr (hn::MaxLanes(d) == 4) {
    return {v, hn::Broadcast<3>(v)};
  } else {
    static_assert(hn::MaxLanes(d) == 8);
    const V fours = hn::Broadcast<3>(v);
    return {hn::Add(v, hn::Combine(d, hn::LowerHalf(fours), hn::Zero(hn::Half<D>()))),
            hn::Add(fours, hn::ConcatLowerUpper(d, fours, fours))};
  }
}
#endif

// Appends the indices after the gaps: `next` is the lowest index that the first of them can be, and becomes the lowest
// for those that follow. False if one is not below dim; the indices are undefined then. REQUIRES: next <= dim <= 2^32,
// at most 1024 gaps.
HWY_INLINE bool add_up(std::span<const std::uint32_t> gaps, std::uint64_t dim, std::uint64_t& next,
                       std::uint32_t* indices) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::CappedTag<std::uint32_t, 8> d;
  using V = hn::Vec<decltype(d)>;
  constexpr std::uint32_t kSmall = 1U << 22;  // the sum of 1024 smaller ones, with 1 added to each, is at most 2^32
  const std::size_t whole = gaps.size() / hn::Lanes(d) * hn::Lanes(d);
  const V one = hn::Set(d, 1);
  V before = hn::Set(d, static_cast<std::uint32_t>(next) - 1);
  V bits = hn::Zero(d);
  for (std::size_t i = 0; i < whole; i += hn::Lanes(d)) {
    const V gap = hn::LoadU(d, gaps.data() + i);
    const auto sums = add_up_lanes(d, hn::Add(gap, one));
    hn::StoreU(hn::Add(before, sums.up_to), d, indices + i);
    before = hn::Add(before, sums.all);
    bits = hn::Or(bits, gap);
  }
  const bool is_small = hn::AllTrue(d, hn::Lt(bits, hn::Set(d, kSmall - 1)));
  // Modulo 2^32, which is enough: `whole` gaps take `whole` indices at least, and fewer than 2^32.
  const std::uint32_t sum = hn::GetLane(before) + 1 - static_cast<std::uint32_t>(next);
  std::size_t i = 0;
  if (is_small) {
    if (sum > dim - next) return false;
    next += sum;
    i = whole;
  }
  for (; i < gaps.size(); ++i) {
    if (next >= dim || gaps[i] > dim - 1 - next) return false;
    indices[i] = static_cast<std::uint32_t>(next + gaps[i]);
    next += std::uint64_t{gaps[i]} + 1;
  }
  return true;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace sparsewire::kernels
HWY_AFTER_NAMESPACE();
#endif
