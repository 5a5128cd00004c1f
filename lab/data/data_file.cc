#include "data/data_file.h"

#include <fmt/core.h>

#include <filesystem>
#include <span>
#include <system_error>

#include "data/gzip.h"
#include "sparsewire/errors.h"
#include "sparsewire/support/crc32c.h"

namespace sparsewire::train {

bool is_there(const std::string& path) {
  std::error_code error;
  return std::filesystem::symlink_status(path, error).type() != std::filesystem::file_type::not_found;
}

files::Bytes read_data_file(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) {
    throw UsageError(fmt::format("there is no file '{}': 'sparsewire data' says where to get it", path));
  }
  if (status.type() == std::filesystem::file_type::directory) {
    throw UsageError(fmt::format("'{}' is a folder, and a file is expected there", path));
  }
  // A pipe or a device may never end. Where the status cannot be read, opening the file says why.
  if (!error && status.type() != std::filesystem::file_type::regular) {
    throw UsageError(fmt::format("'{}' is not a regular file", path));
  }
  files::Bytes bytes = files::Input(path).read(kMostDataBytes + 1);
  if (bytes.size > kMostDataBytes) throw UsageError(fmt::format("'{}' is larger than 2 GiB: {}", path, kGetItAgain));
  return bytes;
}

DataContent::DataContent(std::string_view bytes, std::string_view name)
    : bytes_(bytes), name_(name), is_compressed_(is_gzip(bytes)) {}

std::string_view DataContent::first(std::uint64_t most) {
  if (!is_compressed_) return bytes_.substr(0, most);
  unpacked_ = gunzip(bytes_, name_, most);
  return unpacked_;
}

void Fingerprint::add(std::string_view content) noexcept {
  size_ += content.size();
  crc_ = crc32c(std::as_bytes(std::span(content)), crc_);
}

std::string Fingerprint::text() const { return fmt::format("{} bytes, CRC-32C {:08x}", size_, crc_); }

}  // namespace sparsewire::train
