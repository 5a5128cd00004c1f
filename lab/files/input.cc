#include "files/input.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "sparsewire/errors.h"

namespace sparsewire::files {
namespace {

constexpr std::uint64_t kFirstPiece = 65536;  // read at a time where the size is not known: what a pipe holds

[[noreturn]] void fail(const std::string& path, int error) {
  throw UsageError(fmt::format("cannot read '{}': {}", path, std::generic_category().message(error)));
}

// Uninitialised: a large file is not written twice.
void make_room(Bytes& bytes, std::size_t room) {
  std::unique_ptr<std::byte[]> larger(new std::byte[room]);
  std::copy_n(bytes.storage.get(), bytes.size, larger.get());
  bytes.storage = std::move(larger);
}

}  // namespace

Input::Input(std::string path) : path_(std::move(path)), file_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (file_ < 0) fail(path_, errno);
  struct stat status {};
  if (::fstat(file_, &status) == 0 && S_ISREG(status.st_mode)) expected_ = static_cast<std::uint64_t>(status.st_size);
}

Input::~Input() { ::close(file_); }

Bytes Input::read(std::uint64_t wanted) {
  Bytes bytes;
  read_until(wanted, bytes);
  return bytes;
}

void Input::read_until(std::uint64_t size, Bytes& bytes) {
  const std::size_t before = bytes.size;
  if (before >= size) return;
  // One more than expected: reading past the last byte shows that it was.
  std::uint64_t room = before + std::min(size - before, std::max(expected_ + 1, kFirstPiece));
  make_room(bytes, room);
  while (bytes.size < size) {
    if (bytes.size == room) {
      room = std::min(size, 2 * room);
      make_room(bytes, room);
    }
    const ssize_t got = ::read(file_, bytes.storage.get() + bytes.size, room - bytes.size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(path_, errno);
    if (got == 0) break;
    bytes.size += static_cast<std::size_t>(got);
  }
  expected_ -= std::min<std::uint64_t>(expected_, bytes.size - before);
}

Bytes read_file(const std::string& path) { return Input(path).read(kNoLimit); }

}  // namespace sparsewire::files
