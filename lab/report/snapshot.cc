#include "report/snapshot.h"

#include <sys/stat.h>

#include <filesystem>

#include "files/replace.h"

namespace sparsewire::report {
namespace {

namespace fs = std::filesystem;

constexpr int kDepth = 2;  // runs/<id>/metrics.jsonl

// FNV-1a, over the bytes of numbers and names.
class Mix {
 public:
  void add(std::uint64_t number) {
    for (int i = 0; i < 8; ++i) {
      value_ = (value_ ^ (number >> (8 * i) & 0xffU)) * 0x100000001b3U;
    }
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325U;
};

std::uint64_t state_of(const fs::path& path) {
  struct stat status {};
  Mix mix;
  for (const char letter : path.string()) mix.add(static_cast<unsigned char>(letter));
  if (::stat(path.c_str(), &status) == 0) {
    mix.add(static_cast<std::uint64_t>(status.st_ino));
    mix.add(static_cast<std::uint64_t>(status.st_size));
    mix.add(static_cast<std::uint64_t>(status.st_mtim.tv_sec));
    mix.add(static_cast<std::uint64_t>(status.st_mtim.tv_nsec));
  }
  return mix.value();
}

}  // namespace

std::uint64_t snapshot(const std::vector<std::string>& inputs, const std::string& without) {
  std::uint64_t all = 0;
  for (const std::string& input : inputs) {
    std::error_code error;
    if (!fs::is_directory(input, error)) {
      all += state_of(input);
      continue;
    }
    // A sum, because the order of a folder's files is not fixed. What disappears meanwhile changes it, as it should.
    fs::recursive_directory_iterator entry(input, fs::directory_options::skip_permission_denied, error);
    while (!error && entry != fs::recursive_directory_iterator()) {
      const std::string name = entry->path().filename().string();
      const bool is_hidden = name.starts_with('.') && !name.starts_with(".unfinished-");
      if (is_hidden || entry.depth() >= kDepth) entry.disable_recursion_pending();
      std::error_code ignored;
      const bool counts =
          !is_hidden && entry->is_regular_file(ignored) && !files::is_same_file(entry->path().string(), without);
      if (counts) all += state_of(entry->path());
      entry.increment(error);
    }
  }
  return all;
}

}  // namespace sparsewire::report
