// A folder that one program at a time may write to.
#pragma once

#include <string>

namespace sparsewire::files {

// Locked until it is destroyed, or the program ends, however that happens.
class FolderLock {
 public:
  // Throws UsageError if another program, or another part of this one, has it. A file system that knows no locks gives
  // none, and no error.
  explicit FolderLock(const std::string& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int file_;
};

}  // namespace sparsewire::files
