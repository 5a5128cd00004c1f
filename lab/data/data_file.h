// A file of a data set, and the fingerprint of several.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "files/input.h"

namespace sparsewire::train {

// The most bytes that a file may have, also unpacked: 2 GiB. The largest known data set in these formats has 0.6.
inline constexpr std::uint64_t kMostDataBytes = std::uint64_t{1} << 31;

// For messages about files that are incomplete or of another kind.
inline constexpr std::string_view kGetItAgain = "get it again ('sparsewire data' says where)";

// Whether something has that name, even if it leads nowhere or cannot be looked at.
bool is_there(const std::string& path);

// The whole file as it is. Throws UsageError if it is missing, not a regular file, cannot be read, or is larger than
// kMostDataBytes.
files::Bytes read_data_file(const std::string& path);

// The content of a file whose bytes these are: they themselves, or unpacked if they are compressed with gzip.
class DataContent {
 public:
  // `bytes` and `name`, which is for messages, must live as long as this.
  DataContent(std::string_view bytes, std::string_view name);

  // At most the first `most` bytes of the content. Valid until the next call. Throws UsageError if the compressed data
  // are damaged.
  std::string_view first(std::uint64_t most);

 private:
  std::string_view bytes_;
  std::string_view name_;
  bool is_compressed_;
  std::string unpacked_;
};

// Size and checksum of the contents of one file after the other.
class Fingerprint {
 public:
  void add(std::string_view content) noexcept;
  // "1234 bytes, CRC-32C 0badcafe": as if all were one file.
  std::string text() const;

 private:
  std::uint64_t size_ = 0;
  std::uint32_t crc_ = 0;
};

}  // namespace sparsewire::train
