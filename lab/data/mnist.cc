// MNIST and Fashion-MNIST: four idx files.
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "data/idx.h"
#include "data/images.h"
#include "sparsewire/errors.h"

namespace sparsewire::train {
namespace {

constexpr std::uint32_t kDigits = 10;

// The unpacked file, or else the compressed one, which is how they are published.
std::string idx_path(const std::string& folder, std::string_view name) {
  const std::string path = fmt::format("{}/{}", folder, name);
  return is_there(path) ? path : path + ".gz";
}

IdxArray read_idx(const std::string& path, unsigned dimensions, Fingerprint& fingerprint) {
  const files::Bytes bytes = read_data_file(path);
  return parse_idx(bytes.text(), path, dimensions, fingerprint);
}

ImageSet read_part(const std::string& folder, std::string_view part, std::string& fingerprint) {
  Fingerprint both;
  const std::string images_path = idx_path(folder, fmt::format("{}-images-idx3-ubyte", part));
  const std::string labels_path = idx_path(folder, fmt::format("{}-labels-idx1-ubyte", part));
  IdxArray images = read_idx(images_path, 3, both);
  IdxArray labels = read_idx(labels_path, 1, both);
  if (images.shape[0] != labels.shape[0]) {
    throw UsageError(fmt::format("'{}' has {} labels, and '{}' has {} images", labels_path, labels.shape[0],
                                 images_path, images.shape[0]));
  }
  const auto wrong =
      std::find_if(labels.numbers.begin(), labels.numbers.end(), [](std::uint8_t label) { return label >= kDigits; });
  if (wrong != labels.numbers.end()) {
    throw UsageError(fmt::format("'{}': label {} of image {} is not in [0, {}]", labels_path, *wrong,
                                 wrong - labels.numbers.begin(), kDigits - 1));
  }
  fingerprint = both.text();
  return {.channels = 1,
          .height = images.shape[1],
          .width = images.shape[2],
          .classes = kDigits,
          .pixels = std::move(images.numbers),
          .labels = std::move(labels.numbers)};
}

}  // namespace

ImageData read_mnist(const std::string& folder) {
  ImageData data;
  data.train = read_part(folder, "train", data.fingerprint);
  data.test = read_part(folder, "t10k", data.test_fingerprint);
  if (data.train.height != data.test.height || data.train.width != data.test.width) {
    throw UsageError(fmt::format("'{}' has training images of {}x{} pixels and test images of {}x{}", folder,
                                 data.train.height, data.train.width, data.test.height, data.test.width));
  }
  return data;
}

}  // namespace sparsewire::train
