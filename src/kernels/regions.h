// Which rank owns an entry of the model: the arithmetic of exchange/regions.h, for one entry or for many.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sparsewire::kernels {

// Blocks of entries go round the ranks; `ranks` consecutive blocks are a group, and each group begins with another
// rank. Only 32-bit numbers and no branch: so loops over it vectorise.
class RegionMap {
 public:
  static constexpr std::uint32_t kBlock = 16;  // entries

  // REQUIRES: 1 <= ranks <= 65536.
  explicit RegionMap(std::uint32_t ranks) noexcept : ranks_(ranks), reciprocal_(~std::uint32_t{0} / ranks) {}

  std::uint32_t ranks() const noexcept { return ranks_; }
  // 2^32 / ranks, rounded down, or 1 less.
  std::uint32_t reciprocal() const noexcept { return reciprocal_; }

  struct Owner {
    std::uint32_t region;
    std::uint32_t local;  // the index in the region
  };
  [[gnu::always_inline]] Owner owner_of(std::uint32_t index) const noexcept {
    const Division block = divide(index / kBlock);
    const std::uint32_t turned = block.rest + rotation(block.quotient);
    return {turned - (turned >= ranks_ ? ranks_ : 0), block.quotient * kBlock + index % kBlock};
  }

  // The index in the model of the entry `local` of a region.
  [[gnu::always_inline]] std::uint32_t global(std::uint32_t region, std::uint32_t local) const noexcept {
    const std::uint32_t group = local / kBlock;
    return (group * ranks_ + slot_of(region, group)) * kBlock + local % kBlock;
  }

  // The block of the group that the region owns: (region - rotation) modulo ranks.
  [[gnu::always_inline]] std::uint32_t slot_of(std::uint32_t region, std::uint32_t group) const noexcept {
    const std::uint32_t turned = rotation(group);
    return region - turned + (region < turned ? ranks_ : 0);
  }

 private:
  struct Division {
    std::uint32_t quotient;
    std::uint32_t rest;
  };
  // number / ranks. The product differs from the quotient by less than 1, because ranks * reciprocal is at most `ranks`
  // below 2^32: so it is the quotient, or one less.
  [[gnu::always_inline]] Division divide(std::uint32_t number) const noexcept {
    const auto nearly = static_cast<std::uint32_t>(std::uint64_t{number} * reciprocal_ >> 32);
    const std::uint32_t rest = number - nearly * ranks_;
    const bool is_less = rest >= ranks_;
    return {nearly + (is_less ? 1 : 0), rest - (is_less ? ranks_ : 0)};
  }

  // A hash of the group, modulo ranks. The hash is the finaliser of MurmurHash3: every bit of the number reaches every
  // bit of the result.
  [[gnu::always_inline]] std::uint32_t rotation(std::uint32_t group) const noexcept {
    group = (group ^ group >> 16) * 0x85EBCA6BU;
    group = (group ^ group >> 13) * 0xC2B2AE35U;
    return divide(group ^ group >> 16).rest;
  }

  std::uint32_t ranks_;
  std::uint32_t reciprocal_;
};

// Finds the owners of indices. REQUIRES: arrays of as many.
void find_owners(const RegionMap& map, std::span<const std::uint32_t> indices, std::uint16_t* regions,
                 std::uint32_t* locals) noexcept;

// Replaces indices of a region by those of the model.
void make_global(const RegionMap& map, std::uint32_t region, std::span<std::uint32_t> indices) noexcept;

}  // namespace sparsewire::kernels
