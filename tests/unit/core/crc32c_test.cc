#include "sparsewire/support/crc32c.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/crc32c_extend.h"

namespace sparsewire::crc32c_test {
namespace {

std::vector<std::byte> some_bytes(std::size_t size) {
  std::vector<std::byte> bytes(size);
  std::uint32_t state = 1;
  for (std::byte& byte : bytes) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<std::byte>(state >> 24);
  }
  return bytes;
}

void check(std::span<const std::byte> bytes) {
  ASSERT_EQ(crc32c(bytes), crc32c_by_table(bytes)) << bytes.size();
  ASSERT_EQ(~crc32c_extend_in_parts(~0U, bytes), crc32c_by_table(bytes)) << bytes.size();
}

// Of every length around those from which other instructions are used, at every alignment.
TEST(Crc32c, IsTheSameByEveryInstruction) {
  const std::vector<std::byte> bytes = some_bytes(64 + 40000);
  for (std::size_t size = 0; size < 3000; ++size) {
    ASSERT_NO_FATAL_FAILURE(check(std::span(bytes).subspan(size % 64, size)));
  }
  for (const std::size_t size : {12287U, 12288U, 12289U, 24575U, 24576U, 25000U, 39999U, 40000U}) {
    ASSERT_NO_FATAL_FAILURE(check(std::span(bytes).subspan(size % 64, size)));
  }
}

TEST(Crc32c, ContinuesAChecksum) {
  const std::vector<std::byte> bytes = some_bytes(9001);
  for (const std::size_t first : {0U, 1U, 1023U, 1024U, 5000U, 9001U}) {
    const std::uint32_t before = crc32c_extend(~0U, std::span(bytes).first(first));
    EXPECT_EQ(~crc32c_extend(before, std::span(bytes).subspan(first)), crc32c_by_table(bytes)) << first;
  }
}

}  // namespace
}  // namespace sparsewire::crc32c_test
