// Folders and files that one program at a time may change.
//
// Locks are flock(2): they end with the program, however that happens, so a kill leaves none behind. A file system that
// knows no locks gives none, and no error.
#pragma once

#include <string>
#include <string_view>

namespace sparsewire::files {

// Locks a file or a folder that is open, until it is closed. False: another program, or another part of this one, has
// locked it.
bool lock_open_file(int file) noexcept;

// Whether the file that is open still has this name: its owner may have removed it just before we locked it.
bool is_still(const std::string& name, int file) noexcept;

// The name of a hidden file of ours beside this one: ".sparsewire-NAME.lock", with `ending` = ".lock".
std::string name_beside(const std::string& path, std::string_view ending);

// Locks a folder until it is destroyed.
class FolderLock {
 public:
  // Throws UsageError if another program, or another part of this one, has locked it.
  explicit FolderLock(const std::string& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int file_;
};

// Locks a file that is replaced, or still to be made, until it is destroyed. A lock on the file itself would stay with
// the old file when a new one is renamed over it, so what is locked is a file beside it, .sparsewire-NAME.lock. It is
// removed at the end; one that a kill left behind blocks nobody and is removed by the next.
class FileLock {
 public:
  // `path` may be a symbolic link: the file that it leads to is locked.
  explicit FileLock(const std::string& path);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  // Another program, or another part of this one, has locked it.
  bool is_taken() const noexcept { return is_taken_; }

 private:
  std::string name_;
  int file_ = -1;
  bool is_taken_ = false;
};

}  // namespace sparsewire::files
