#include "data/data_sets.h"

#include <fmt/core.h>

#include <filesystem>
#include <system_error>

#include "sparsewire/errors.h"
#include "text/environment.h"
#include "text/names.h"

namespace sparsewire::train {
namespace {

constexpr DataFileInfo kMnistFiles[] = {
    {"train-images-idx3-ubyte", "6bbc9ace898e44ae57da46a324031adb", "f68b3c2dcbeaaa9fbdd348bbdeb94873"},
    {"train-labels-idx1-ubyte", "a25bea736e30d166cdddb491f175f624", "d53e105ee54ea40749a09fcbcd1e9432"},
    {"t10k-images-idx3-ubyte", "2646ac647ad5339dbf082846283269ea", "9fb629c4189551a2d022fa330f9573f3"},
    {"t10k-labels-idx1-ubyte", "27ae3e4e09519cfbb04c329615203637", "ec29112dd5afa0611ce80d1b7f02629c"},
};
constexpr DataFileInfo kFashionMnistFiles[] = {
    {"train-images-idx3-ubyte", "f4a8712d7a061bf5bd6d2ca38dc4d50a", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"},
    {"train-labels-idx1-ubyte", "9018921c3c673c538a1fc5bad174d6f9", "25c81989df183df01b3e8a0aad5dffbe"},
    {"t10k-images-idx3-ubyte", "8181f5470baa50b63fa0f6fddb340f0a", "bef4ecab320f06d8554ea6380940ec79"},
    {"t10k-labels-idx1-ubyte", "15d484375f8d13e6eb1aabb0c3f46965", "bb300cfdad3c16e7a12a480ee83cd310"},
};
constexpr DataFileInfo kCifar10Files[] = {
    {"data_batch_1.bin", "5dd7e06a14cb22eb9f671a540d1b7c25", ""},
    {"data_batch_2.bin", "5ea93a67294ea407fff1d09f752e9692", ""},
    {"data_batch_3.bin", "942cd6a4bcdd0dd3c604fbe906cb4421", ""},
    {"data_batch_4.bin", "ae636b3ba5c66a11e91e8cb52e771fcb", ""},
    {"data_batch_5.bin", "53f37980c15c3d472c316c40844f3f0d", ""},
    {"test_batch.bin", "803d5f7f4d78ea53de84dbe85f74fb6d", ""},
};
constexpr DataFileInfo kTinyShakespeareFiles[] = {
    {"input.txt", "6fb458f1232090904fb40fe944165e91", ""},
};

// LeCun's own page of MNIST, http://yann.lecun.com/exdb/mnist/, no longer hands the files out.
constexpr DataSetInfo kDataSets[] = {
    {"mnist", "handwritten digits: 60,000 + 10,000 grey images of 28x28, 10 classes",
     "https://ossci-datasets.s3.amazonaws.com/mnist/", "four .gz files; they may stay packed", kMnistFiles},
    {"fashion-mnist", "clothes: 60,000 + 10,000 grey images of 28x28, 10 classes",
     "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/", "four .gz files; they may stay packed",
     kFashionMnistFiles},
    {"cifar10", "50,000 + 10,000 colour images of 32x32, 10 classes",
     "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
     "the binary version, MD5 c32a1d4ab5d03f1284b67883e8d87530; unpack it", kCifar10Files},
    {"tinyshakespeare", "some of Shakespeare's plays: 1,115,394 characters, 65 different ones",
     "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt", "",
     kTinyShakespeareFiles},
};

bool is_folder(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

}  // namespace

std::span<const DataSetInfo> data_sets() noexcept { return kDataSets; }

const DataSetInfo& data_set_info(std::string_view name) {
  return kDataSets[find_by_name(kDataSets, name, "a data set")];
}

std::string data_folder(const std::string& given) {
  const std::string folder = given.empty() ? environment::data() : given;
  if (folder.empty()) {
    throw UsageError(
        "where are the data sets? Name their folder with --data-dir or in the environment variable "
        "SPARSEWIRE_DATA; 'sparsewire data' lists what belongs there");
  }
  if (!is_folder(folder)) {
    throw UsageError(fmt::format("'{}', which {} names, is not a folder that can be read", folder,
                                 given.empty() ? "SPARSEWIRE_DATA" : "--data-dir"));
  }
  return folder;
}

std::string place_of_data_set(std::string_view name, const std::string& data_folder) {
  const std::string folder = fmt::format("{}/{}", data_folder, name);
  const std::string unpacked = folder + "/cifar-10-batches-bin";
  return name == "cifar10" && is_folder(unpacked) ? unpacked : folder;
}

std::string data_set_folder(std::string_view name, const std::string& data_folder) {
  const std::string folder = place_of_data_set(name, data_folder);
  if (is_folder(folder)) return folder;
  throw UsageError(
      fmt::format("the data set {} is missing: there is no folder '{}'; 'sparsewire data' says where to get "
                  "it",
                  name, folder));
}

ImageData read_images(std::string_view name, const std::string& data_folder) {
  const std::string folder = data_set_folder(name, data_folder);
  return name == "cifar10" ? read_cifar10(folder) : read_mnist(folder);
}

TextData read_tinyshakespeare(const std::string& data_folder) {
  return read_text(data_set_folder("tinyshakespeare", data_folder) + "/input.txt");
}

}  // namespace sparsewire::train
