#include "files/replace.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <mutex>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace sparsewire::files {
namespace {

constexpr std::size_t kPiece = 65536;      // bytes that are written together
constexpr std::uint64_t kPageSize = 4096;  // a shorter hole saves no disk
constexpr int kMostLinks = 40;             // as Linux follows
constexpr int kMostNames = 10000;          // tried for the file aside, of which others may be left over

constexpr std::array<std::byte, kPageSize> kZeros{};

// What the links lead to, whether it exists or not; std::filesystem::canonical wants all of it to exist.
std::string follow(std::filesystem::path path) {
  for (int links = 0; links < kMostLinks; ++links) {
    std::error_code error;
    const std::filesystem::path next = std::filesystem::read_symlink(path, error);
    if (error) break;  // no link
    path = path.parent_path() / next;
  }
  return path.string();
}

// The names of the files aside, where a signal handler can read them: a flag says which are in use.
struct Unfinished {
  std::array<char, 4096> name;
  std::atomic<bool> used = false;
};
std::array<Unfinished, 16> unfinished;  // more at a time are not remembered
std::mutex unfinished_mutex;            // of those who change it; the handler only reads

void remember(const std::string& name) {
  const std::lock_guard lock(unfinished_mutex);
  for (Unfinished& one : unfinished) {
    if (one.used || name.size() >= one.name.size()) continue;
    std::copy_n(name.c_str(), name.size() + 1, one.name.data());
    one.used = true;
    return;
  }
}

void forget(const std::string& name) {
  const std::lock_guard lock(unfinished_mutex);
  for (Unfinished& one : unfinished) {
    if (one.used && name == one.name.data()) one.used = false;
  }
}

bool is_same(const struct stat& a, const struct stat& b) { return a.st_dev == b.st_dev && a.st_ino == b.st_ino; }

}  // namespace

// There are file systems that cannot sync a folder; that is no reason to fail.
void sync_folder(const std::string& folder) {
  const int directory = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return;
  ::fsync(directory);
  ::close(directory);
}

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
  open_aside();
}

void Replacement::open_aside() {
  target_ = follow(path_);
  struct stat old {};
  const bool exists = ::stat(target_.c_str(), &old) == 0;
  if (!exists && errno != ENOENT) fail(errno);
  // A rename would not ask whether the old file may be written.
  if (exists && ::access(target_.c_str(), W_OK) != 0) fail(errno);
  const std::filesystem::path folder = std::filesystem::path(target_).parent_path();
  for (int i = 0; file_ < 0; ++i) {
    std::string name = (folder / fmt::format(".sparsewire-{}-{}.tmp", ::getpid(), i)).string();
    // Until it has the mode of the old one nobody else may look.
    file_ = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, exists ? 0600 : 0666);
    if (file_ >= 0) {
      aside_ = std::move(name);
      remember(aside_);
    }
    if (file_ < 0 && (errno != EEXIST || i == kMostNames)) fail(errno);
  }
  if (!exists) return;
  // Only root can give a file away; for everybody else it is theirs already, or becomes theirs.
  if (::fchown(file_, old.st_uid, old.st_gid) != 0) errno = 0;
  if (::fchmod(file_, old.st_mode & 0777U) != 0) {
    const int error = errno;
    ::close(file_);
    ::unlink(aside_.c_str());
    forget(aside_);
    fail(error);
  }
}

Replacement::~Replacement() {
  if (file_ >= 0) ::close(file_);
  if (aside_.empty()) return;
  ::unlink(aside_.c_str());
  forget(aside_);
}

void Replacement::write(std::span<const std::byte> bytes) {
  if (waiting_.size() + bytes.size() > kPiece) flush();
  if (bytes.size() >= kPiece) {
    write_through(bytes);
  } else {
    waiting_.insert(waiting_.end(), bytes.begin(), bytes.end());
  }
  if (!bytes.empty()) has_hole_at_end_ = false;
}

void Replacement::skip(std::uint64_t zeros) {
  if (aside_.empty() || zeros < kPageSize) {
    for (; zeros > 0; zeros -= std::min(zeros, kPageSize)) {
      write(std::span(kZeros).first(static_cast<std::size_t>(std::min(zeros, kPageSize))));
    }
    return;
  }
  flush();
  if (!std::in_range<off_t>(zeros)) fail(EFBIG);
  if (::lseek(file_, static_cast<off_t>(zeros), SEEK_CUR) < 0) fail(errno);
  has_hole_at_end_ = true;
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
  if (has_hole_at_end_ && ::ftruncate(file_, ::lseek(file_, 0, SEEK_CUR)) != 0) fail(errno);
  if (!aside_.empty() && ::fsync(file_) != 0) fail(errno);
  if (::close(std::exchange(file_, -1)) != 0) fail(errno);
}

void Replacement::commit() {
  prepare();
  if (aside_.empty()) return;
  if (std::rename(aside_.c_str(), target_.c_str()) != 0) fail(errno);
  forget(aside_);
  aside_.clear();
  sync_folder(std::filesystem::path(target_).parent_path().string());  // only then is the rename durable
}

void Replacement::fail(int error) const {
  throw std::runtime_error(fmt::format("cannot write '{}': {}", path_, std::generic_category().message(error)));
}

void remove_unfinished() noexcept {
  for (const Unfinished& one : unfinished) {
    if (one.used) ::unlink(one.name.data());
  }
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
    return std::filesystem::weakly_canonical(std::filesystem::absolute(follow(path)), error);
  };
  return place(a) == place(b);
}

bool is_standard_output(const std::string& path) {
  struct stat status {};
  struct stat printed {};
  return ::stat(path.c_str(), &status) == 0 && ::fstat(STDOUT_FILENO, &printed) == 0 && is_same(status, printed);
}

}  // namespace sparsewire::files
