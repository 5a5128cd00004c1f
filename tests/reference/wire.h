// A second implementation of frames, slow and obviously right: written bit by bit from docs/reference/wire_format.md.
//
// It shares nothing with src/ except the plain types of the public headers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sparsewire/sparse_vector.h"

namespace sparsewire::reference {

using Bytes = std::vector<std::byte>;

enum class IndexCodec : std::uint8_t { full, golomb, bitmap, raw32, seed, runs, adaptive };
enum class ValueCodec : std::uint8_t { f32, f16, bf16, int8, int4, int2 };

// The choices that an encoder has.
struct Form {
  IndexCodec indices = IndexCodec::golomb;
  ValueCodec values = ValueCodec::f32;
  std::uint32_t block = 256;
  std::uint32_t divisor = 1;            // of golomb, and of the gaps of runs
  std::uint32_t divisor_of_length = 1;  // of runs
  bool packed = false;
  std::uint8_t fold = 0;        // of packed values
  std::uint32_t reference = 0;  // of packed values; as large as the smallest magnitude, at most, for fold 0
  std::uint8_t linear = 3;      // of numbers in blocks
  std::vector<std::uint8_t> parameters = {1};  // of numbers in blocks: of block 0, 1, ..., and from the start again
};

// A decoded frame.
struct Frame {
  Form form;
  SparseVector vector;  // with its draw
  std::size_t value_bytes = 0;
  std::size_t index_bytes = 0;
  std::vector<float> low;   // of each block: the scale of int8 and int4, the lower magnitude of int2
  std::vector<float> high;  // of each block of int2
};

std::uint32_t crc32c(std::span<const std::byte> bytes);

// The bytes with their last four replaced by the checksum of the rest.
Bytes with_checksum(Bytes bytes);

// REQUIRES: a valid vector, full exactly for IndexCodec::full, drawn for IndexCodec::seed; finite values.
// int8 and int4 take their scale from the largest magnitude of a block; int2 takes the mean magnitude for both of its
// magnitudes.
Bytes write_frame(const SparseVector& vector, const Form& form);

// Decodes a frame; nothing if a reader must refuse the bytes.
std::optional<Frame> read_frame(std::span<const std::byte> bytes);

// k of n positions, drawn for unit number `unit` as docs/reference/wire_format.md describes.
std::vector<std::uint32_t> draw_positions(const Draw& draw, std::uint64_t unit, std::uint64_t k, std::uint64_t n);

}  // namespace sparsewire::reference
