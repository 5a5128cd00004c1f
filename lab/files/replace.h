// A file that is replaced whole or not at all: a temporary file beside it is written, made durable, and renamed over
// it.
//
//   Replacement frame("out.swf");
//   Replacement memory("memory.npy");
//   frame.write(...);
//   memory.write(...);
//   frame.prepare();      // a full disk shows here, where nothing has changed yet
//   memory.prepare();
//   frame.commit();       // in this order, also after a crash or a power cut
//   memory.commit();
//
// The temporary file is locked as long as its owner lives. One that a kill left behind is removed when the same file is
// replaced again.
//
// A pipe, a device or standard output cannot be renamed: it is written as the bytes come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace sparsewire::files {

// All functions throw std::runtime_error, "cannot write 'x.npy': No space left on device". Then every file that was not
// committed yet is unchanged, and no temporary file is left. After a signal, remove_unfinished() (files/unfinished.h)
// does the same.
class Replacement {
 public:
  // Follows symbolic links: the file that they lead to is replaced, and keeps its mode.
  explicit Replacement(std::string path);
  ~Replacement();
  Replacement(const Replacement&) = delete;
  Replacement& operator=(const Replacement&) = delete;

  void write(std::span<const std::byte> bytes);
  // Writes this many zero bytes. COST: long runs take no disk space where the file system knows holes.
  void skip(std::uint64_t zeros);

  // Brings everything to disk, in the temporary file. Nothing can be written after it.
  void prepare();
  // Prepares, unless that is done, and renames the temporary file over the target.
  void commit();

 private:
  void open_temporary();
  void remove_temporary();
  void flush();
  bool grow(std::uint64_t zeros);
  void write_through(std::span<const std::byte> bytes);
  [[noreturn]] void fail(int error) const;

  std::string path_;                // as given, for messages
  std::string target_;              // what the links lead to
  std::string temporary_;           // empty: the target is written directly, or it is committed
  int file_ = -1;                   // -1: prepared
  int lock_ = -1;                   // the temporary file, which is locked until it is renamed or removed
  std::vector<std::byte> waiting_;  // small pieces, to be written together
};

// What symbolic links lead to, whether it exists or not.
std::string follow_links(const std::string& path);

// Whether writing one would change the other: the same regular file, whatever it is called, or the same name of one
// that is still to be made.
bool is_same_file(const std::string& a, const std::string& b);

// Whether what is written there would appear on standard output.
bool is_standard_output(const std::string& path);

}  // namespace sparsewire::files
