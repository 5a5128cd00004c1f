#include "core/clear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace sparsewire::clear_test {
namespace {

// Of every length around the size from which caches are passed, at every alignment: all zero, and nothing beside it.
TEST(Clear, WritesExactlyTheseBytes) {
  constexpr std::size_t kLarge = std::size_t{16} << 20;
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{100}, kLarge - 1, kLarge, kLarge + 63}) {
    for (const std::size_t start : {std::size_t{1}, std::size_t{16}, std::size_t{63}, std::size_t{64}}) {
      std::vector<std::byte> bytes(size + 192, std::byte{0x5A});
      clear(std::span(bytes).subspan(start, size));
      const auto zeros = std::count(bytes.begin(), bytes.end(), std::byte{0});
      EXPECT_EQ(zeros, static_cast<std::ptrdiff_t>(size)) << size << " from " << start;
      EXPECT_EQ(bytes[start - 1], std::byte{0x5A});
      EXPECT_EQ(bytes[start + size], std::byte{0x5A});
    }
  }
}

}  // namespace
}  // namespace sparsewire::clear_test
