// A frame that is written where its entries are: on a device. The codec decides how (codec/codec.cc), from what it is
// told about the entries; the device writes the same bytes as the codec would.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "sparsewire/sparse_vector.h"

namespace sparsewire {

// What index codecs have to know to say how long they would be. A gap is the number of indices left out before one.
struct Support {
  std::uint64_t dim = 0;
  std::size_t count = 0;   // of indices
  std::uint32_t last = 0;  // index
  std::size_t runs = 0;    // of consecutive indices
  // Gaps at the places of kernels::number_sample(count) and kernels::divisor_sample(count).
  std::span<const std::uint32_t> gaps;
  std::span<const std::uint32_t> divisor_gaps;
  const Draw* draw = nullptr;         // how the indices were drawn; null: they were not
  mutable std::uint32_t divisor = 0;  // of Golomb's code, when it has been searched for
  // The code of `adaptive`, when it has been searched for (codec/numbers.h, NumberChoice).
  struct Numbers {
    bool is_known = false;
    int linear = 0;
    int parameter = 0;
    double bits = 0;
  };
  mutable Numbers numbers;

  std::uint64_t sum_of_gaps() const noexcept { return count == 0 ? 0 : std::uint64_t{last} + 1 - count; }
};

// How a device writes a frame: values as int2 in blocks of kPlannedBlock.
struct FramePlan {
  enum class Indices : std::uint8_t { golomb, adaptive };

  std::array<std::uint32_t, 7> head{};  // the first bytes: the header, and the size of a block
  Indices indices = Indices::adaptive;
  std::uint32_t divisor = 1;    // of golomb
  std::uint32_t linear = 0;     // of adaptive
  std::uint32_t parameter = 0;  // of adaptive: that of some block, a guess for the others
};
inline constexpr std::size_t kPlannedBlock = 256;
// Frames with fewer entries, or more, are not planned.
inline constexpr std::size_t kLeastPlanned = 1024;
inline constexpr std::size_t kMostPlanned = std::size_t{1} << 28;

class FramePlanner {
 public:
  virtual ~FramePlanner() = default;
  // Nothing if these entries have to be encoded on the host.
  virtual std::optional<FramePlan> plan(const Support& support) = 0;
};

}  // namespace sparsewire
