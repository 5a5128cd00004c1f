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

void find_owners(const RegionMap& rule, std::span<const std::uint32_t> indices, std::uint16_t* HWY_RESTRICT regions,
                 std::uint32_t* HWY_RESTRICT locals) {
  const RegionMap map = rule;  // in registers
  for (std::size_t i = 0; i < indices.size(); ++i) {
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
