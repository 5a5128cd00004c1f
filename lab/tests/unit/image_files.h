// Small data sets in the formats of the large ones.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "unit/folder.h"

namespace sparsewire {

// An idx file of bytes.
inline std::string idx_file(const std::vector<std::uint32_t>& shape, const std::string& numbers) {
  std::string file{'\0', '\0', '\x08', static_cast<char>(shape.size())};
  for (const std::uint32_t length : shape) {
    for (int shift = 24; shift >= 0; shift -= 8) file += static_cast<char>(length >> shift & 0xFF);
  }
  return file + numbers;
}

// Pixels that differ: byte i of image n is 7n + 3i, modulo 256.
inline std::string made_up_pixels(std::uint32_t image, std::uint32_t size) {
  std::string pixels;
  for (std::uint32_t i = 0; i < size; ++i) pixels += static_cast<char>((7 * image + 3 * i) & 0xFF);
  return pixels;
}

// Label n is n modulo 10.
inline std::string made_up_labels(std::uint32_t count) {
  std::string labels;
  for (std::uint32_t n = 0; n < count; ++n) labels += static_cast<char>(n % 10);
  return labels;
}

inline std::string made_up_images(std::uint32_t count, std::uint32_t height, std::uint32_t width) {
  std::string pixels;
  for (std::uint32_t n = 0; n < count; ++n) pixels += made_up_pixels(n, height * width);
  return idx_file({count, height, width}, pixels);
}

// The four files of MNIST, unpacked, in the folder `name`.
inline void write_mnist(const Folder& folder, const std::string& name, std::uint32_t train = 20,
                        std::uint32_t test = 10, std::uint32_t side = 28) {
  std::filesystem::create_directories(folder / name);
  for (const auto& [part, count] : {std::pair("train", train), std::pair("t10k", test)}) {
    folder.write(name + "/" + part + "-images-idx3-ubyte", made_up_images(count, side, side));
    folder.write(name + "/" + part + "-labels-idx1-ubyte", idx_file({count}, made_up_labels(count)));
  }
}

// Records of CIFAR-10, of images first ... first+count-1.
inline std::string cifar10_records(std::uint32_t first, std::uint32_t count) {
  std::string file;
  for (std::uint32_t n = first; n < first + count; ++n) {
    file += static_cast<char>(n % 10);
    file += made_up_pixels(n, 3 * 32 * 32);
  }
  return file;
}

// The six files of CIFAR-10, in the folder `name`: images 0, 1, ... for training, and the first ones again for testing.
inline void write_cifar10(const Folder& folder, const std::string& name, std::uint32_t each = 4) {
  std::filesystem::create_directories(folder / name);
  for (std::uint32_t batch = 0; batch < 5; ++batch) {
    folder.write(name + "/data_batch_" + std::to_string(batch + 1) + ".bin", cifar10_records(batch * each, each));
  }
  folder.write(name + "/test_batch.bin", cifar10_records(0, each));
}

}  // namespace sparsewire
