// Any bytes as a .npy file: a UsageError of one line that names the file, or an array whose parts fit together.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <span>
#include <string>
#include <string_view>

#include "files/npy.h"
#include "require.h"
#include "sparsewire/errors.h"

namespace sparsewire {
namespace {

// A file in memory that has a name.
class MemoryFile {
 public:
  MemoryFile() : file_(::memfd_create("npy_fuzz", 0)) { require(file_ >= 0, "there is a file in memory"); }

  std::string path() const { return "/proc/self/fd/" + std::to_string(file_); }

  void write(std::span<const std::uint8_t> bytes) const {
    const auto size = static_cast<ssize_t>(bytes.size());
    require(::ftruncate(file_, 0) == 0 && ::pwrite(file_, bytes.data(), bytes.size(), 0) == size, "it can be written");
  }

 private:
  int file_;
};

void check(const files::Array& array, std::size_t file_size) {
  const std::size_t item = array.type == NumberType::f32 ? 4 : 2;
  require(array.type == NumberType::f32 || array.type == NumberType::f16, "it is of a type that is read");
  require(array.bytes.size == array.size * item, "there are as many bytes as numbers");
  require(array.bytes.size <= file_size, "the numbers come from the file");
  std::uint64_t size = 1;
  const bool is_empty = std::count(array.shape.begin(), array.shape.end(), 0U) > 0;
  for (const std::uint64_t length : array.shape) size *= is_empty ? 0 : length;
  require(array.size == size, "the shape has as many numbers");
}

}  // namespace
}  // namespace sparsewire

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sparsewire;
  static const MemoryFile file;
  file.write({data, size});
  try {
    check(files::read_npy(file.path()), size);
  } catch (const UsageError& error) {
    const std::string_view what = error.what();
    require(what.find(file.path()) != std::string_view::npos, "an error names the file");
    require(std::none_of(what.begin(), what.end(), [](char c) { return std::iscntrl(static_cast<unsigned char>(c)); }),
            "an error is one line of text");
  }
  return 0;
}
