#include "sparsify/error_memory.h"

#include <algorithm>

#include "core/slices.h"

namespace sparsewire {

ErrorMemory::ErrorMemory(std::size_t size, Pool* pool, Device device)
    : size_(size),
      memory_(device.kind == Device::host ? size : 0),
      place_(device.kind == Device::host ? Device{} : device),
      device_(device.kind == Device::host ? nullptr : make_device_memory(device, size)),
      whole_(whole_unit(size)),
      pool_(pool),
      together_(pool, pool == nullptr ? 1 : static_cast<std::size_t>(pool->size())),
      tiles_(kernels::tiles_of(size)),
      bad_(together_.parts()) {
  for (std::size_t thread = 0; thread < together_.parts(); ++thread) alone_.emplace_back(nullptr, thread);
}

void ErrorMemory::begin_units() noexcept {
  together_.begin(memory_.data());
  for (UnitPass& pass : alone_) pass.begin(memory_.data());
}

std::optional<std::size_t> ErrorMemory::accumulate(const kernels::ScaledGradient* gradient) {
  if (is_on_device()) {
    nothing_.make(1, [](std::size_t) { return UnitChoice{}; });
    if (const auto bad = device_->take({&whole_, 1}, nothing_, 1, nullptr, gradient, taken_)) return bad;
    norm2_ = taken_.accumulated_norm2[0];
    return std::nullopt;
  }
  together_.begin(memory_.data());
  const auto bad = together_.take_all(whole_, gradient, kernels::kInfinityKey);
  norm2_ = together_.accumulated_norm2();
  return bad;
}

std::optional<std::size_t> ErrorMemory::take_everything(const kernels::ScaledGradient* gradient, std::span<float> all) {
  if (is_on_device()) {
    if (const auto bad = accumulate(gradient)) return bad;
    device_->read(0, all);
    device_->clear();
    return std::nullopt;
  }
  std::fill(bad_.begin(), bad_.end(), kernels::kNoneBad);
  for_each_slice(pool_, size_, kGrain, [&](std::size_t begin, std::size_t end, int thread) {
    kernels::TileNorms norm;
    norm.begin(tiles_.data(), begin / kernels::kTile);
    std::size_t& bad = bad_[static_cast<std::size_t>(thread)];
    for (std::size_t first = begin; first < end && bad == kernels::kNoneBad; first += kGrain) {
      const std::size_t n = std::min(kGrain, end - first);
      if (gradient == nullptr) {
        std::copy_n(memory_.data() + first, n, all.data() + first);
        kernels::sum_squares(Gradient(all), first, n, norm);
      } else {
        bad = kernels::accumulate_into(*gradient, first, n, memory_.data(), all.data(), norm);
      }
    }
    norm.end();
  });
  const std::size_t bad = *std::min_element(bad_.begin(), bad_.end());
  if (bad != kernels::kNoneBad) {
    make_round_trip(whole_, gradient);
    return bad;
  }
  norm2_ = kernels::sum_tiles(tiles_.data(), tiles_.size());
  clear();
  return std::nullopt;
}

void ErrorMemory::restore(const kernels::ScaledGradient* gradient) {
  if (gradient == nullptr) return;
  if (is_on_device()) return device_->restore(*gradient);
  for_each_slice(pool_, size_, kGrain, [&](std::size_t begin, std::size_t end, int) {
    kernels::restore(*gradient, begin, end - begin, memory_.data());
  });
}

void ErrorMemory::restore(const Unit& unit, const kernels::ScaledGradient* gradient) noexcept {
  if (gradient == nullptr) return;
  for_each_range(unit, 0, unit.size, kGrain, [&](std::size_t first, std::size_t n) {
    kernels::restore(*gradient, first, n, memory_.data());
    return true;
  });
}

void ErrorMemory::make_round_trip(const Unit& unit, const kernels::ScaledGradient* gradient) noexcept {
  if (gradient == nullptr) return;
  for_each_range(unit, 0, unit.size, kGrain, [&](std::size_t first, std::size_t n) {
    kernels::make_round_trip(*gradient, first, n, memory_.data());
    return true;
  });
}

double ErrorMemory::norm2(const kernels::ScaledGradient& numbers) {
  if (numbers.device.kind != Device::host) return device_->norm2(numbers);
  for_each_slice(pool_, numbers.size, kGrain, [&](std::size_t begin, std::size_t end, int) {
    kernels::TileNorms norm;
    norm.begin(tiles_.data(), begin / kernels::kTile);
    kernels::sum_squares(numbers, begin, end - begin, norm);
    norm.end();
  });
  return kernels::sum_tiles(tiles_.data(), kernels::tiles_of(numbers.size));
}

}  // namespace sparsewire
