#include "codec/support.h"

#include "codec/index_codec.h"
#include "kernels/entries.h"

namespace sparsewire {

const Support& SupportOf::look_at(const SparseVector& vector) noexcept {
  const std::span<const std::uint32_t> indices = vector.indices;
  const auto take = [&](const kernels::Stretches& stretches, std::span<std::uint32_t> gaps) {
    std::size_t size = 0;
    stretches.for_each([&](std::size_t i) { gaps[size++] = gap_before(indices, i); });
    return std::span<const std::uint32_t>(gaps).first(size);
  };
  support_.dim = vector.dim;
  support_.count = indices.size();
  support_.last = indices.empty() ? 0 : indices.back();
  support_.runs = kernels::count_runs(indices);
  support_.gaps = take(kernels::number_sample(indices.size()), gaps_);
  support_.divisor_gaps = take(kernels::divisor_sample(indices.size()), divisor_gaps_);
  support_.draw = &vector.draw;
  support_.divisor.reset();
  support_.numbers.reset();
  return support_;
}

}  // namespace sparsewire
