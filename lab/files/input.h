// A file that a user names: any kind that can be read to its end, also a pipe. What it announces about its size is not
// believed: memory is taken for bytes that have arrived.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace sparsewire::files {

// Bytes as they were read, aligned for any number.
struct Bytes {
  std::unique_ptr<std::byte[]> storage;
  std::size_t size = 0;

  const std::byte* data() const noexcept { return storage.get(); }
  std::span<const std::byte> span() const noexcept { return {data(), size}; }
  std::string_view text() const noexcept { return {reinterpret_cast<const char*>(data()), size}; }
};

inline constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

class Input {
 public:
  // All functions throw UsageError: "cannot read 'x.npy': No such file or directory".
  explicit Input(std::string path);
  ~Input();
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

  const std::string& path() const noexcept { return path_; }

  // The next bytes; fewer than `wanted` only where the file ends.
  Bytes read(std::uint64_t wanted);
  // Appends to `bytes` until it has `size` bytes or the file ends. For a caller who looks at the beginning of a file
  // first, since a pipe or a device may never end.
  void read_until(std::uint64_t size, Bytes& bytes);

 private:
  std::string path_;
  int file_ = -1;
  std::uint64_t expected_ = 0;  // bytes that are probably left, to take the memory for them at once
};

// The whole file. REQUIRES: it is known to end, as a regular file does.
Bytes read_file(const std::string& path);

}  // namespace sparsewire::files
