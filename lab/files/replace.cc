#include "files/replace.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "files/folder.h"
#include "files/lock.h"
#include "files/unfinished.h"

namespace sparsewire::files {
namespace {

constexpr std::size_t kPiece = 65536;      // bytes that are written together
constexpr std::uint64_t kPageSize = 4096;  // a shorter hole saves no disk space
constexpr int kMostLinks = 40;             // as many as Linux follows
constexpr int kMostNames = 10000;          // tried for the temporary file: others may replace the same one

constexpr std::array<std::byte, kPageSize> kZeros{};

bool is_same(const struct stat& a, const struct stat& b) { return a.st_dev == b.st_dev && a.st_ino == b.st_ino; }

// Removes a temporary file that a kill left behind: nobody has locked it.
void remove_leftover(const std::string& name) {
  const int file = ::open(name.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return;
  if (::flock(file, LOCK_EX | LOCK_NB) == 0 && is_still(name, file)) ::unlink(name.c_str());
  ::close(file);
}

}  // namespace

Replacement::Replacement(std::string path) : path_(std::move(path)) {
  waiting_.reserve(kPiece);
  if (is_standard_output(path_)) {  // not opened again: its position, and its >>, are those of the shell
    file_ = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);
    if (file_ < 0) fail(errno);
    return;
  }
  struct stat status {};
  if (::stat(path_.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    file_ = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
    if (file_ < 0) fail(errno);
    return;
  }
  open_temporary();
}

void Replacement::open_temporary() {
  target_ = follow_links(path_);
  struct stat old {};
  const bool exists = ::stat(target_.c_str(), &old) == 0;
  if (!exists && errno != ENOENT) fail(errno);
  // A rename would not ask whether the old file may be written.
  if (exists && ::access(target_.c_str(), W_OK) != 0) fail(errno);
  for (int i = 0; file_ < 0; ++i) {
    std::string name = name_beside(target_, i == 0 ? ".tmp" : fmt::format(".{}.tmp", i));
    remove_leftover(name);
    // Only the owner may read it until it has the mode of the old file.
    file_ = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, exists ? 0600 : 0666);
    if (file_ < 0 && errno == EEXIST && i < kMostNames) continue;
    if (file_ < 0) fail(errno);
    if (!lock_open_file(file_) || !is_still(name, file_)) {  // another one took it for left behind
      ::close(std::exchange(file_, -1));
      continue;
    }
    temporary_ = std::move(name);
    remember_unfinished(temporary_);
  }
  lock_ = ::fcntl(file_, F_DUPFD_CLOEXEC, 0);  // prepare() closes the other one
  if (!exists) return;
  // Only root can change the owner. For other users the new file is theirs.
  if (::fchown(file_, old.st_uid, old.st_gid) != 0) errno = 0;
  if (::fchmod(file_, old.st_mode & 0777U) != 0) {
    const int error = errno;
    remove_temporary();
    fail(error);
  }
}

Replacement::~Replacement() { remove_temporary(); }

// Forgotten before it is removed, and removed before it is unlocked: then the name may be another one's.
void Replacement::remove_temporary() {
  if (!temporary_.empty()) {
    forget_unfinished(temporary_);
    ::unlink(temporary_.c_str());
  }
  if (file_ >= 0) ::close(file_);
  if (lock_ >= 0) ::close(lock_);
}

void Replacement::write(std::span<const std::byte> bytes) {
  if (waiting_.size() + bytes.size() > kPiece) flush();
  if (bytes.size() >= kPiece) {
    write_through(bytes);
  } else {
    waiting_.insert(waiting_.end(), bytes.begin(), bytes.end());
  }
}

void Replacement::skip(std::uint64_t zeros) {
  if (zeros < kPageSize || !grow(zeros)) {
    for (; zeros > 0; zeros -= std::min(zeros, kPageSize)) {
      write(std::span(kZeros).first(static_cast<std::size_t>(std::min(zeros, kPageSize))));
    }
  }
}

// Makes a file that ends here longer, which standard output may be too. False: it is none.
bool Replacement::grow(std::uint64_t zeros) {
  flush();
  struct stat status {};
  const off_t at = ::lseek(file_, 0, SEEK_CUR);
  if (at < 0 || ::fstat(file_, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size != at) return false;
  if (!std::in_range<off_t>(zeros) || zeros > static_cast<std::uint64_t>(std::numeric_limits<off_t>::max() - at)) {
    fail(EFBIG);
  }
  if (::ftruncate(file_, at + static_cast<off_t>(zeros)) != 0 || ::lseek(file_, 0, SEEK_END) < 0) fail(errno);
  return true;
}

void Replacement::flush() {
  write_through(waiting_);
  waiting_.clear();
}

void Replacement::write_through(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(errno);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void Replacement::prepare() {
  if (file_ < 0) return;
  flush();
  if (!temporary_.empty() && ::fsync(file_) != 0) fail(errno);
  if (::close(std::exchange(file_, -1)) != 0) fail(errno);
}

void Replacement::commit() {
  prepare();
  if (temporary_.empty()) return;
  forget_unfinished(temporary_);  // afterwards the name may be another one's
  if (std::rename(temporary_.c_str(), target_.c_str()) != 0) fail(errno);
  temporary_.clear();
  ::close(std::exchange(lock_, -1));
  sync_folder(std::filesystem::path(target_).parent_path().string());  // only then is the rename durable
}

void Replacement::fail(int error) const {
  throw std::runtime_error(fmt::format("cannot write '{}': {}", path_, std::generic_category().message(error)));
}

// std::filesystem::canonical wants all of it to exist.
std::string follow_links(const std::string& path) {
  std::filesystem::path target = path;
  for (int links = 0; links < kMostLinks; ++links) {
    std::error_code error;
    const std::filesystem::path next = std::filesystem::read_symlink(target, error);
    if (error) break;  // not a link
    target = target.parent_path() / next;
  }
  return target.string();
}

bool is_same_file(const std::string& a, const std::string& b) {
  struct stat status_a {};
  struct stat status_b {};
  const bool has_a = ::stat(a.c_str(), &status_a) == 0;
  const bool has_b = ::stat(b.c_str(), &status_b) == 0;
  if (has_a && has_b) return S_ISREG(status_a.st_mode) && is_same(status_a, status_b);
  if (has_a || has_b) return false;
  const auto place = [](const std::string& path) {
    std::error_code error;  // a folder that cannot be looked into: writing will say so
    return std::filesystem::weakly_canonical(std::filesystem::absolute(follow_links(path)), error);
  };
  return place(a) == place(b);
}

bool is_standard_output(const std::string& path) {
  struct stat status {};
  struct stat printed {};
  return ::stat(path.c_str(), &status) == 0 && ::fstat(STDOUT_FILENO, &printed) == 0 && is_same(status, printed);
}

}  // namespace sparsewire::files
