// Plain loops that vectorise, compiled for each SIMD level (see golomb.cc).
#include "kernels/regions.h"

#include "kernels/targets.h"  // must come before foreach_target.h
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/regions.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace sparsewire::kernels {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// The arithmetic of RegionMap for many numbers.
template <class D, class V = hn::Vec<D>>
class Divider {
 public:
  Divider(D d, const RegionMap& map) : ranks_(hn::Set(d, map.ranks())), reciprocal_(hn::Set(d, map.reciprocal())) {}

  struct Division {
    V quotient;
    V rest;
  };
  HWY_INLINE Division divide(D d, V number) const {
    const V nearly = high_of_product(d, number);
    const V rest = hn::Sub(number, hn::Mul(nearly, ranks_));
    return {hn::IfThenElse(hn::Lt(rest, ranks_), nearly, hn::Add(nearly, hn::Set(d, 1))), modulo(rest)};
  }
  HWY_INLINE V turn(V rest, V rotation) const { return modulo(hn::Add(rest, rotation)); }

 private:
  // Of a number below 2 ranks: where it is below `ranks`, the difference is above 2^31.
  HWY_INLINE V modulo(V number) const { return hn::Min(number, hn::Sub(number, ranks_)); }
  // The upper half of number * reciprocal. Compilers multiply 64-bit numbers for it, which takes three times as long.
  HWY_INLINE V high_of_product(D d, V number) const {
    const hn::Repartition<std::uint64_t, D> d_wide;
    const auto even = hn::MulEven(number, reciprocal_);
    const auto odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(d_wide, number))), reciprocal_);
    return hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even)));
  }

  V ranks_;
  V reciprocal_;
};

// The same hash as in RegionMap.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V hash(D d, V group) {
  group = hn::Mul(hn::Xor(group, hn::ShiftRight<16>(group)), hn::Set(d, 0x85EBCA6BU));
  group = hn::Mul(hn::Xor(group, hn::ShiftRight<13>(group)), hn::Set(d, 0xC2B2AE35U));
  return hn::Xor(group, hn::ShiftRight<16>(group));
}

void find_owners(const RegionMap& map, std::span<const std::uint32_t> indices, std::uint16_t* HWY_RESTRICT regions,
                 std::uint32_t* HWY_RESTRICT locals) {
  std::size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::ScalableTag<std::uint32_t> d;
  const hn::Rebind<std::uint16_t, decltype(d)> d_regions;
  const Divider<decltype(d)> divider(d, map);
  constexpr std::uint32_t kInBlock = RegionMap::kBlock - 1;
  static_assert(RegionMap::kBlock == 16);
  for (; i + hn::Lanes(d) <= indices.size(); i += hn::Lanes(d)) {
    const auto index = hn::LoadU(d, indices.data() + i);
    const auto block = divider.divide(d, hn::ShiftRight<4>(index));
    const auto rotation = divider.divide(d, hash(d, block.quotient)).rest;
    hn::StoreU(hn::TruncateTo(d_regions, divider.turn(block.rest, rotation)), d_regions, regions + i);
    const auto local = hn::Or(hn::ShiftLeft<4>(block.quotient), hn::And(index, hn::Set(d, kInBlock)));
    hn::StoreU(local, d, locals + i);
  }
#endif
  for (; i < indices.size(); ++i) {
    const RegionMap::Owner owner = map.owner_of(indices[i]);
    regions[i] = static_cast<std::uint16_t>(owner.region);
    locals[i] = owner.local;
  }
}

void make_global(const RegionMap& rule, std::uint32_t region, std::span<std::uint32_t> indices) {
  const RegionMap map = rule;
  for (std::uint32_t& index : indices) index = map.global(region, index);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace sparsewire::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sparsewire::kernels {
namespace {
HWY_EXPORT(find_owners);
HWY_EXPORT(make_global);
}  // namespace

void find_owners(const RegionMap& map, std::span<const std::uint32_t> indices, std::uint16_t* regions,
                 std::uint32_t* locals) noexcept {
  HWY_DYNAMIC_DISPATCH(find_owners)(map, indices, regions, locals);
}

void make_global(const RegionMap& map, std::uint32_t region, std::span<std::uint32_t> indices) noexcept {
  HWY_DYNAMIC_DISPATCH(make_global)(map, region, indices);
}

}  // namespace sparsewire::kernels
#endif  // HWY_ONCE
