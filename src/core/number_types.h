// WritableNumbers in the formats of NumberType, one at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/half.h"
#include "sparsewire/gradient.h"

namespace sparsewire {

// numbers[i] = x, rounded to the type. REQUIRES: the numbers are on the host.
inline void write_number(const WritableNumbers& numbers, std::size_t i, float x) noexcept {
  switch (numbers.type) {
    case NumberType::f32:
      static_cast<float*>(numbers.data)[i] = x;
      break;
    case NumberType::bf16:
      static_cast<std::uint16_t*>(numbers.data)[i] = to_bf16(x);
      break;
    case NumberType::f16:
      static_cast<std::uint16_t*>(numbers.data)[i] = to_f16(x);
      break;
  }
}

}  // namespace sparsewire
