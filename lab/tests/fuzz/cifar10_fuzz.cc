// Any bytes as a file of CIFAR-10, and as a text: a UsageError that names the file, or data whose parts fit together.
#include <algorithm>
#include <cstdint>
#include <string_view>

#include "data/cifar10.h"
#include "data/text.h"
#include "require.h"
#include "sparsewire/errors.h"

namespace sparsewire {
namespace {

template <class Read>
void check(Read read) {
  try {
    read();
  } catch (const UsageError& error) {
    require(std::string_view(error.what()).find("'x'") != std::string_view::npos, "an error names the file");
  }
}

void read_images(std::string_view bytes) {
  train::ImageSet images = train::no_cifar10_images();
  train::parse_cifar10(bytes, "x", images);
  require(bytes.size() == images.size() * 3073 && images.size() != 0, "every record is an image");
  require(images.pixels.size() == images.size() * images.image_size(), "every image has its pixels");
  for (const std::uint8_t label : images.labels) require(label < images.classes, "labels are below the classes");
}

void read_text(std::string_view bytes) {
  const train::TextData text = train::parse_text(bytes, "x");
  require(text.alphabet.size() >= 2 && std::is_sorted(text.alphabet.begin(), text.alphabet.end(),
                                                      [](unsigned char a, unsigned char b) { return a < b; }),
          "the alphabet ascends");
  for (const std::uint8_t symbol : text.symbols) require(symbol < text.alphabet.size(), "symbols are in the alphabet");
  std::size_t size = 0;
  for (const train::Part part : train::kParts) {
    require(!text.part(part).empty(), "no part is empty");
    size += text.part(part).size();
  }
  require(size == text.symbols.size(), "the parts are the text");
}

}  // namespace
}  // namespace sparsewire

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sparsewire;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  check([&] { read_images(bytes); });
  check([&] { read_text(bytes); });
  return 0;
}
