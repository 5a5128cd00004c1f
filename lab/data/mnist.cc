// MNIST and Fashion-MNIST: four idx files.
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "data/data_sets.h"
#include "data/idx.h"
#include "sparsewire/errors.h"

namespace sparsewire::train {
namespace {

constexpr DataFileInfo kMnistFiles[] = {
    {"train-images-idx3-ubyte", "6bbc9ace898e44ae57da46a324031adb", "f68b3c2dcbeaaa9fbdd348bbdeb94873"},
    {"train-labels-idx1-ubyte", "a25bea736e30d166cdddb491f175f624", "d53e105ee54ea40749a09fcbcd1e9432"},
    {"t10k-images-idx3-ubyte", "2646ac647ad5339dbf082846283269ea", "9fb629c4189551a2d022fa330f9573f3"},
    {"t10k-labels-idx1-ubyte", "27ae3e4e09519cfbb04c329615203637", "ec29112dd5afa0611ce80d1b7f02629c"},
};

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

// LeCun's own page, http://yann.lecun.com/exdb/mnist/, no longer hands the files out.
DataSetInfo mnist_data_set() noexcept {
  return {
      .name = "mnist",
      .summary = "handwritten digits: 60,000 + 10,000 grey images of 28x28, 10 classes",
      .source = "https://ossci-datasets.s3.amazonaws.com/mnist/",
      .note = "four .gz files; they may stay packed",
      .files = kMnistFiles,
      .images = read_mnist,
      .size = 28,
      .normalisation = kMnistNormalisation,
  };
}

}  // namespace sparsewire::train
