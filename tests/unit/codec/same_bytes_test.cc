// The bytes of frames of many entries, which an encoder may not change: also where two choices are equally short.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/simd.h"
#include "sparsewire/codec.h"
#include "sparsewire/support/crc32c.h"
#include "unit/machines.h"

namespace sparsewire {
namespace {

// Entries in clusters, with values above a threshold: by integers alone, the same on every machine.
SparseVector clustered(std::size_t count) {
  SparseVector vector;
  std::uint64_t state = 20261117;
  const auto draw = [&] {
    state = state * 6364136223846793005U + 1442695040888963407U;
    return static_cast<std::uint32_t>(state >> 33);
  };
  std::uint32_t index = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t mean = (i / 4096) % 3 == 0 ? 8 : (i / 4096) % 3 == 1 ? 100 : 900;
    const std::uint32_t gap = draw() % mean;
    index += 1 + gap * (draw() % 64 == 0 ? 20 : 1);
    vector.indices.push_back(index);
    const auto tail = static_cast<float>(1 + draw() % 1024);
    const float factor = draw() % 32 == 0 ? 9.0F : 1.0F;
    vector.values.push_back((draw() % 2 == 0 ? 1.0F : -1.0F) * (1.0F + tail * factor / 512.0F));
  }
  vector.dim = index + 1;
  return vector;
}

struct Case {
  std::string spec;
  std::uint32_t checksum;
};

class SameBytes : public ::testing::TestWithParam<Case> {};

TEST_P(SameBytes, AsVersion070WroteThem) {
  Codec codec(GetParam().spec);
  std::vector<std::byte> frame;
  codec.encode(clustered(50'003), frame);
  // Without its own checksum: the checksum of both together is the same for all frames.
  EXPECT_EQ(crc32c(std::span<const std::byte>(frame).first(frame.size() - 4)), GetParam().checksum)
      << GetParam().spec << " " << frame.size() << " bytes";
}

INSTANTIATE_TEST_SUITE_P(Specs, SameBytes,
                         ::testing::Values(Case{"auto", 2230979411U}, Case{"auto:values=bf16", 4112846485U},
                                           Case{"auto:values=f16", 1899179478U}, Case{"auto:values=int8", 1946024986U},
                                           Case{"adaptive:values=int4,pack=yes", 1541326724U},
                                           Case{"golomb:pack=yes", 2159081470U}, Case{"runs", 525039138U}));

// Gaps and values whose size jumps from block to block, by up to 31 bits, and now and then within one.
SparseVector jumping(std::size_t count) {
  SparseVector vector;
  std::uint64_t state = 42 + count;
  const auto draw = [&] {
    state = state * 6364136223846793005U + 1442695040888963407U;
    return static_cast<std::uint32_t>(state >> 33);
  };
  std::uint32_t index = 0;
  std::uint32_t gap_bits = 0;
  std::uint32_t value_bits = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (i % 32 == 0) gap_bits = draw() % 23;
    if (i % 32 == 0) value_bits = draw() % 4 == 0 ? draw() % 31 : 12;
    const std::uint32_t more = draw() % 64 == 0 ? 7 : 0;
    index += 1 + (draw() >> (31 - std::min(22U, gap_bits + more)));
    vector.indices.push_back(index);
    const std::uint32_t magnitude = std::min(0x7F7FFFFFU, draw() >> (31 - std::min(31U, value_bits + more)));
    vector.values.push_back(std::bit_cast<float>(magnitude | draw() % 2 << 31));
  }
  vector.dim = index + 1;
  return vector;
}

TEST(SameBytesOfJumpingNumbers, AsVersion070WroteThemAtEverySimdLevel) {
  for (const std::string& level : kernels::simd_levels()) {
    const AtLevel at(level);
    std::uint32_t sum = 0;
    for (const char* const spec : {"adaptive:pack=yes", "auto:values=bf16"}) {
      Codec codec(spec);
      for (const std::size_t count : {1U,  2U,  15U, 16U,  17U,  31U,  32U,  33U,  63U,  64U,  65U,  95U,  96U,
                                      97U, 98U, 99U, 127U, 128U, 129U, 160U, 200U, 255U, 256U, 257U, 300U, 700U}) {
        std::vector<std::byte> frame;
        codec.encode(jumping(count), frame);
        sum = sum * 31 + crc32c(std::span<const std::byte>(frame).first(frame.size() - 4));
      }
    }
    EXPECT_EQ(sum, 3831659505U) << level;
  }
}

}  // namespace
}  // namespace sparsewire
