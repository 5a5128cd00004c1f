// A file that is replaced whole or not at all: written aside, made durable, then renamed over the old one.
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
// A pipe, a device or standard output cannot be renamed: it is written as the bytes come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace sparsewire::files {

// All functions throw std::runtime_error, "cannot write 'x.npy': No space left on device"; whatever was not committed
// by then is as it was, and nothing is left beside it.
class Replacement {
 public:
  // Follows symbolic links: the file that they lead to is replaced, and keeps its mode.
  explicit Replacement(std::string path);
  ~Replacement();
  Replacement(const Replacement&) = delete;
  Replacement& operator=(const Replacement&) = delete;

  void write(std::span<const std::byte> bytes);
  // So many zero bytes. COST: many of them take no disk, where the file system knows holes.
  void skip(std::uint64_t zeros);

  // Everything is on disk, under another name. Nothing can be written after it.
  void prepare();
  // Prepares, if that is still to be done, and puts the file in its place.
  void commit();

 private:
  void open_aside();
  void flush();
  void write_through(std::span<const std::byte> bytes);
  [[noreturn]] void fail(int error) const;

  std::string path_;                // as given, for messages
  std::string target_;              // what the links lead to
  std::string aside_;               // empty: the target is written itself, or it is done
  bool has_hole_at_end_ = false;    // to be made part of the file by its size
  int file_ = -1;                   // -1: prepared
  std::vector<std::byte> waiting_;  // small pieces, to be written together
};

// Makes what was added to a folder durable, as far as its file system can.
void sync_folder(const std::string& folder);

// Removes what lies aside of all Replacements that are under way: for a handler of SIGINT, in which it may be called.
void remove_unfinished() noexcept;

// Whether writing one would change the other: the same regular file, whatever it is called, or the same name of one
// that is still to be made.
bool is_same_file(const std::string& a, const std::string& b);

// Whether the bytes would land where the program prints.
bool is_standard_output(const std::string& path);

}  // namespace sparsewire::files
