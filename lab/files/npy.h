// NumPy's .npy files: a magic, a version, a Python dictionary as text, the numbers.
//
// numpy.lib.format describes them. Versions 1 to 3 with float32 or float16 are read; version 1.0 is written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "files/input.h"
#include "files/replace.h"
#include "sparsewire/gradient.h"

namespace sparsewire::files {

using Shape = std::vector<std::uint64_t>;  // {}: one number

struct Array {
  NumberType type = NumberType::f32;  // or f16
  Shape shape;                        // in C order
  std::size_t size = 0;               // numbers
  Bytes bytes;

  Gradient gradient() const noexcept { return {bytes.data(), type, size}; }
  // REQUIRES: type == NumberType::f32.
  std::span<const float> floats() const noexcept { return {reinterpret_cast<const float*>(bytes.data()), size}; }
};

// Throws UsageError, one sentence with the name of the file, if it cannot be read, is not a .npy file, is cut short or
// has numbers of another type. COST: no more memory than the file has bytes (or 64 KiB), whatever its header says.
Array read_npy(const std::string& path);

// Writes everything before the numbers. `descr` is numpy's name of their type: "<f4".
void write_npy_header(Replacement& file, const std::string& descr, std::span<const std::uint64_t> shape);
// REQUIRES: as many numbers as the shape has.
void write_npy(Replacement& file, std::span<const float> numbers, std::span<const std::uint64_t> shape);
void write_npy(Replacement& file, std::span<const std::uint32_t> numbers, std::span<const std::uint64_t> shape);

}  // namespace sparsewire::files
