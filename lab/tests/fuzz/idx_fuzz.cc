// Any bytes as an idx file of images or labels, compressed or not: a UsageError that names the file, or an array whose
// parts fit together.
#include <cstdint>
#include <string_view>

#include "data/idx.h"
#include "require.h"
#include "sparsewire/errors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sparsewire;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (const unsigned dimensions : {1U, 3U}) {
    train::Fingerprint fingerprint;
    const std::string before = fingerprint.text();
    try {
      const train::IdxArray array = train::parse_idx(bytes, "x.idx", dimensions, fingerprint);
      std::uint64_t numbers = 1;
      for (const std::uint32_t length : array.shape) numbers *= length;
      require(array.shape.size() == dimensions, "it has the dimensions that were asked for");
      require(array.numbers.size() == numbers && numbers != 0, "the shape has as many numbers");
      require(fingerprint.text() != before, "it has a fingerprint");
    } catch (const UsageError& error) {
      require(std::string_view(error.what()).find("'x.idx'") != std::string_view::npos, "an error names the file");
      require(fingerprint.text() == before, "what is refused has none");
    }
  }
  return 0;
}
