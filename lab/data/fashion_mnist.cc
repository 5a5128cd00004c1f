// Fashion-MNIST (Xiao, Rasul and Vollgraf, 2017), in the format of MNIST.
#include "data/data_sets.h"

namespace sparsewire::train {
namespace {

constexpr DataFileInfo kFashionMnistFiles[] = {
    {"train-images-idx3-ubyte", "f4a8712d7a061bf5bd6d2ca38dc4d50a", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"},
    {"train-labels-idx1-ubyte", "9018921c3c673c538a1fc5bad174d6f9", "25c81989df183df01b3e8a0aad5dffbe"},
    {"t10k-images-idx3-ubyte", "8181f5470baa50b63fa0f6fddb340f0a", "bef4ecab320f06d8554ea6380940ec79"},
    {"t10k-labels-idx1-ubyte", "15d484375f8d13e6eb1aabb0c3f46965", "bb300cfdad3c16e7a12a480ee83cd310"},
};

}  // namespace

// The downlink paper normalises it as MNIST (Zou et al., 2022).
DataSetInfo fashion_mnist_data_set() noexcept {
  return {
      .name = "fashion-mnist",
      .summary = "clothes: 60,000 + 10,000 grey images of 28x28, 10 classes",
      .source = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
      .note = "four .gz files; they may stay packed",
      .files = kFashionMnistFiles,
      .images = read_mnist,
      .size = 28,
      .normalisation = kMnistNormalisation,
  };
}

}  // namespace sparsewire::train
