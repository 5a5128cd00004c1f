// Finds the divisor of the Golomb code for each frame, because real supports are not random.
//
// For random supports ln 2 times the mean gap is best. Where entries come in clusters, a divisor just below a power of
// two can be better: then the many small gaps get the shorter remainders.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/golomb.h"

namespace sparsewire {

// The best divisor found for gaps of which a sample and the mean are given. It is at least a quarter of the best
// divisor for random gaps, so that even an unrepresentative sample cannot make the code much longer.
kernels::GolombCode search_divisor(std::span<const std::uint32_t> sample, double mean) noexcept;

// An upper bound for the bytes of one stream with the codes of `count` gaps that add up to `sum`, including the margin
// that a BitWriter needs.
std::size_t most_bytes(const kernels::GolombCode& code, std::size_t count, std::uint64_t sum) noexcept;

}  // namespace sparsewire
