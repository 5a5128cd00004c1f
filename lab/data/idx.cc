#include "data/idx.h"

#include <fmt/core.h>

#include <cstddef>
#include <string>

#include "sparsewire/errors.h"

namespace sparsewire::train {
namespace {

std::uint32_t big_endian(std::string_view bytes) {
  std::uint32_t number = 0;
  for (const char byte : bytes.substr(0, 4)) number = number << 8 | static_cast<std::uint8_t>(byte);
  return number;
}

std::string_view kind_of(std::uint32_t magic) {
  return magic == 0x803 ? "of images" : magic == 0x801 ? "of labels" : "of bytes";
}

void check_magic(std::uint32_t magic, unsigned dimensions, std::string_view name) {
  const std::uint32_t expected = 0x800 + dimensions;
  if (magic == expected) return;
  if (magic == 0x801 || magic == 0x803) {
    throw UsageError(fmt::format("'{}' is an idx file {}, and one {} is expected there: were two files exchanged?",
                                 name, kind_of(magic), kind_of(expected)));
  }
  throw UsageError(fmt::format("'{}' is not an idx file {}: it begins with {:08x}, not {:08x}; {}", name,
                               kind_of(expected), magic, expected, kGetItAgain));
}

// The header and the numbers. The product cannot overflow: it stays below 2^31 before each factor below 2^32.
std::uint64_t announced_size(const std::vector<std::uint32_t>& shape, std::size_t header, std::string_view name) {
  std::uint64_t numbers = 1;
  for (const std::uint32_t length : shape) {
    if (length == 0) throw UsageError(fmt::format("'{}' is empty: its header announces a size of 0", name));
    numbers *= length;
    if (numbers > kMostDataBytes) {
      throw UsageError(fmt::format("'{}' announces more than 2 GiB in its header: {}", name, kGetItAgain));
    }
  }
  return header + numbers;
}

}  // namespace

IdxArray parse_idx(std::string_view bytes, std::string_view name, unsigned dimensions, Fingerprint& fingerprint) {
  const std::size_t header = 4 + 4 * std::size_t{dimensions};
  DataContent content(bytes, name);
  std::string_view text = content.first(header);
  if (text.size() >= 4) check_magic(big_endian(text), dimensions, name);
  if (text.size() < header) {
    throw UsageError(fmt::format("'{}' is cut short: it has {} bytes, and its header alone has {}; {}", name,
                                 text.size(), header, kGetItAgain));
  }
  IdxArray array;
  for (unsigned i = 0; i < dimensions; ++i) array.shape.push_back(big_endian(text.substr(4 + 4 * std::size_t{i})));
  const std::uint64_t announced = announced_size(array.shape, header, name);
  text = content.first(announced + 1);
  if (text.size() < announced) {
    throw UsageError(fmt::format("'{}' is cut short: it has {} bytes, and its header announces {}; {}", name,
                                 text.size(), announced, kGetItAgain));
  }
  if (text.size() > announced) {
    throw UsageError(
        fmt::format("'{}' has more than the {} bytes that its header announces: {}", name, announced, kGetItAgain));
  }
  fingerprint.add(text);
  array.numbers.assign(text.begin() + static_cast<std::ptrdiff_t>(header), text.end());
  return array;
}

}  // namespace sparsewire::train
