#include "data/cifar10.h"

#include <fmt/core.h>

#include <cstddef>
#include <string>

#include "data/data_file.h"
#include "data/data_sets.h"
#include "data/gzip.h"
#include "sparsewire/errors.h"

namespace sparsewire::train {
namespace {

constexpr DataFileInfo kCifar10Files[] = {
    {"data_batch_1.bin", "5dd7e06a14cb22eb9f671a540d1b7c25", ""},
    {"data_batch_2.bin", "5ea93a67294ea407fff1d09f752e9692", ""},
    {"data_batch_3.bin", "942cd6a4bcdd0dd3c604fbe906cb4421", ""},
    {"data_batch_4.bin", "ae636b3ba5c66a11e91e8cb52e771fcb", ""},
    {"data_batch_5.bin", "53f37980c15c3d472c316c40844f3f0d", ""},
    {"test_batch.bin", "803d5f7f4d78ea53de84dbe85f74fb6d", ""},
};

ImageSet read_files(const std::string& folder, const std::vector<std::string>& names, std::string& fingerprint) {
  ImageSet images = no_cifar10_images();
  Fingerprint all;
  for (const std::string& name : names) {
    const std::string path = fmt::format("{}/{}", folder, name);
    const files::Bytes bytes = read_data_file(path);
    parse_cifar10(bytes.text(), path, images);
    all.add(bytes.text());
  }
  fingerprint = all.text();
  return images;
}

}  // namespace

ImageSet no_cifar10_images() {
  return {.channels = 3, .height = 32, .width = 32, .classes = 10, .pixels = {}, .labels = {}};
}

void parse_cifar10(std::string_view bytes, std::string_view name, ImageSet& images) {
  const std::size_t record = 1 + images.image_size();
  if (is_gzip(bytes)) throw UsageError(fmt::format("'{}' is compressed with gzip: unpack it first", name));
  if (bytes.empty() || bytes.size() % record != 0) {
    throw UsageError(
        fmt::format("'{}' has {} bytes, which are not whole records of {} (the original has 10,000 records, "
                    "30,730,000 bytes): {}",
                    name, bytes.size(), record, kGetItAgain));
  }
  images.labels.reserve(images.labels.size() + bytes.size() / record);
  images.pixels.reserve(images.pixels.size() + bytes.size() / record * images.image_size());
  for (std::size_t at = 0; at < bytes.size(); at += record) {
    const auto label = static_cast<std::uint8_t>(bytes[at]);
    if (label >= images.classes) {
      throw UsageError(
          fmt::format("'{}': label {} of image {} is not in [0, {}]; is it the binary version of CIFAR-10?", name,
                      label, at / record, images.classes - 1));
    }
    images.labels.push_back(label);
    const std::string_view pixels = bytes.substr(at + 1, record - 1);
    images.pixels.insert(images.pixels.end(), pixels.begin(), pixels.end());
  }
}

ImageData read_cifar10(const std::string& folder) {
  ImageData data;
  data.train = read_files(
      folder, {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"},
      data.fingerprint);
  data.test = read_files(folder, {"test_batch.bin"}, data.test_fingerprint);
  return data;
}

DataSetInfo cifar10_data_set() noexcept {
  return {
      .name = "cifar10",
      .summary = "50,000 + 10,000 colour images of 32x32, 10 classes",
      .source = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
      .note = "the binary version, MD5 c32a1d4ab5d03f1284b67883e8d87530; unpack it",
      .files = kCifar10Files,
      .inner_folder = "cifar-10-batches-bin",
      .images = read_cifar10,
      .channels = 3,
      .size = 32,
      .normalisation = kCifar10Normalisation,
      .is_augmented = true,
  };
}

}  // namespace sparsewire::train
