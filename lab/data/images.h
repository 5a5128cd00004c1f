// Labelled images, for training and for testing: MNIST, Fashion-MNIST and CIFAR-10, read from their original files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace sparsewire::train {

// Images of one size. Each has a label.
struct ImageSet {
  std::uint32_t channels = 1;
  std::uint32_t height = 0;
  std::uint32_t width = 0;
  std::uint32_t classes = 10;        // labels are below it
  std::vector<std::uint8_t> pixels;  // image after image, each channel after channel, each row by row (NCHW)
  std::vector<std::uint8_t> labels;

  std::size_t size() const noexcept { return labels.size(); }
  std::size_t image_size() const noexcept { return std::size_t{channels} * height * width; }
  // Keeps the first `count`, or all if there are not so many.
  void cut_to(std::size_t count) {
    if (count >= size()) return;
    labels.resize(count);
    pixels.resize(count * image_size());
  }
  // REQUIRES: number < size().
  std::span<const std::uint8_t> image(std::size_t number) const noexcept {
    return std::span(pixels).subspan(number * image_size(), image_size());
  }
};

struct ImageData {
  ImageSet train;
  ImageSet test;  // of the same size, with the same number of classes
  // Of the unpacked files: "47100016 bytes, CRC-32C 0badcafe"; equal for equal contents, compressed or not.
  std::string fingerprint;
  std::string test_fingerprint;
};

// MNIST or a data set in its format, such as Fashion-MNIST: train-images-idx3-ubyte, train-labels-idx1-ubyte and the
// same with t10k-, each as it is or compressed with gzip (.gz). Throws UsageError: one line with the name of the file
// and what is wrong with it.
ImageData read_mnist(const std::string& folder);

// CIFAR-10, binary version: data_batch_1.bin ... data_batch_5.bin and test_batch.bin. Throws UsageError.
ImageData read_cifar10(const std::string& folder);

}  // namespace sparsewire::train
