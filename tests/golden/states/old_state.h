// What the program that made these states and the tests that load them share: the gradients, and the form of the files.
//
// A file is a row of records, each a length (u32, little-endian) and that many bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace sparsewire::old_state {

inline constexpr int kStepsBefore = 3;  // before a state was saved, unless its file says otherwise
inline constexpr int kStepsAfter = 3;   // whose results are in the file
inline constexpr int kRanks = 3;

// The tensors of all models here.
inline const std::vector<std::pair<std::string, std::size_t>> kTensors = {
    {"embedding", 130}, {"bias", 7}, {"unused", 0}, {"output", 83}};

// The learning rate changes within the steps after the state was saved.
inline float lr_of(int step) { return step < 4 ? 0.3F : 0.11F; }

// Numbers of 16 bits and of very different sizes: the same floats on every machine.
inline std::vector<float> gradient_of(int step, int rank) {
  std::size_t dim = 0;
  for (const auto& tensor : kTensors) dim += tensor.second;
  std::vector<float> gradient(dim);
  std::uint32_t x = 7919U * static_cast<std::uint32_t>(step) + 104729U * static_cast<std::uint32_t>(rank) + 1;
  for (float& number : gradient) {
    x = x * 1664525U + 1013904223U;
    const auto high = static_cast<std::int32_t>(x >> 16U) - 32768;
    x = x * 1664525U + 1013904223U;
    number = static_cast<float>(high) / static_cast<float>(4096U << (x >> 29U));
  }
  return gradient;
}

// An update for observe(): at some entries the other workers cancel what was sent, at others they add to it.
inline std::vector<float> made_up_update(const std::vector<float>& values) {
  std::vector<float> update(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) update[i] = values[i] * (i % 3 == 0 ? 0.0F : 0.5F);
  return update;
}

class Writer {
 public:
  explicit Writer(const std::string& path) : file_(path, std::ios::binary) {}

  void bytes(const void* data, std::size_t size) {
    const auto length = static_cast<std::uint32_t>(size);
    file_.write(reinterpret_cast<const char*>(&length), sizeof length);
    file_.write(static_cast<const char*>(data), static_cast<std::streamsize>(size));
  }
  void text(const std::string& text) { bytes(text.data(), text.size()); }
  template <class Array>
  void array(const Array& values) {
    bytes(values.data(), values.size() * sizeof *values.data());
  }

 private:
  std::ofstream file_;
};

class Reader {
 public:
  explicit Reader(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    all_.assign(std::istreambuf_iterator<char>(file), {});
    if (all_.empty()) throw std::runtime_error("no golden state in " + path);
  }

  std::string text() {
    std::uint32_t length = 0;
    if (all_.size() - at_ < sizeof length) throw std::runtime_error("a golden state is too short");
    std::memcpy(&length, all_.data() + at_, sizeof length);
    at_ += sizeof length;
    if (all_.size() - at_ < length) throw std::runtime_error("a golden state is too short");
    at_ += length;
    return all_.substr(at_ - length, length);
  }
  template <class T>
  std::vector<T> array() {
    const std::string bytes = text();
    std::vector<T> values(bytes.size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  bool is_at_end() const { return at_ == all_.size(); }

 private:
  std::string all_;
  std::size_t at_ = 0;
};

}  // namespace sparsewire::old_state
