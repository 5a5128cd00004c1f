// A file that somebody gives us: any kind that can be read to its end, also a pipe. What it announces is not believed:
// memory is taken for bytes that have arrived.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/buffer.h"

namespace sparsewire::files {

// Bytes as they were read, aligned for any number.
struct Bytes {
  Buffer<std::byte> storage;
  std::size_t size = 0;

  std::span<const std::byte> span() const noexcept { return {storage.data(), size}; }
};

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

 private:
  std::string path_;
  int file_ = -1;
  std::uint64_t expected_ = 0;  // bytes that are probably left, to take the memory for them at once
};

// The whole file.
Bytes read_file(const std::string& path);

}  // namespace sparsewire::files
