#include "files/lock.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <span>
#include <string>
#include <utility>

#include "files/replace.h"
#include "files/unfinished.h"
#include "sparsewire/errors.h"
#include "sparsewire/support/crc32c.h"

namespace sparsewire::files {
namespace {

constexpr std::size_t kLongestName = 200;  // with what comes before and after it, below the 255 that file systems allow

// NFS locks only what is open for writing; another user's file may be open for reading only.
int open_lock(const std::string& name) {
  const int file = ::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  return file >= 0 || errno != EACCES ? file : ::open(name.c_str(), O_RDONLY | O_CLOEXEC);
}

}  // namespace

bool lock_open_file(int file) noexcept { return ::flock(file, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK; }

bool is_still(const std::string& name, int file) noexcept {
  struct stat opened {};
  struct stat named {};
  return ::fstat(file, &opened) == 0 && ::stat(name.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
         opened.st_ino == named.st_ino;
}

std::string name_beside(const std::string& path, std::string_view ending) {
  const std::filesystem::path whole_path = path;
  std::string name = whole_path.filename().string();
  if (name.size() > kLongestName) {  // names that begin alike must not share a lock
    const std::uint32_t whole = crc32c(std::as_bytes(std::span(name)));
    name = fmt::format("{}-{:08x}", name.substr(0, kLongestName), whole);
  }
  return (whole_path.parent_path() / fmt::format(".sparsewire-{}{}", name, ending)).string();
}

FolderLock::FolderLock(const std::string& folder) : file_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (file_ < 0 || lock_open_file(file_)) return;
  ::close(file_);
  throw UsageError(
      fmt::format("'{}' is in use by another training or study: wait for it to end, or choose another folder", folder));
}

FolderLock::~FolderLock() {
  if (file_ >= 0) ::close(file_);
}

// A folder in which no file can be made gives no lock: whoever replaces the file will find that out and say so.
FileLock::FileLock(const std::string& path) : name_(name_beside(follow_links(path), ".lock")) {
  while ((file_ = open_lock(name_)) >= 0) {
    if (::flock(file_, LOCK_EX | LOCK_NB) != 0) {
      is_taken_ = errno == EWOULDBLOCK;
      if (!is_taken_) ::unlink(name_.c_str());  // nobody can lock it here
      break;
    }
    if (is_still(name_, file_)) {
      remember_unfinished(name_);
      return;
    }
    ::close(file_);  // the lock of a file that is gone is worth nothing: take a new one
  }
  if (file_ >= 0) ::close(std::exchange(file_, -1));
}

// Removed while it is still locked, so that nobody else's lock is removed.
FileLock::~FileLock() {
  if (file_ < 0) return;
  ::unlink(name_.c_str());
  forget_unfinished(name_);
  ::close(file_);
}

}  // namespace sparsewire::files
