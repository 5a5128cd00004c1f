// Vectors that are difficult for a codec, and helpers for the tests of frames.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cstdint>
#include <limits>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "reference/half.h"
#include "reference/inputs.h"
#include "reference/wire.h"
#include "sparsewire/codec.h"
#include "sparsewire/sparse_vector.h"

namespace sparsewire {

using Bytes = std::vector<std::byte>;
using Indices = std::vector<std::uint32_t>;

constexpr std::uint64_t kLargestDim = 0xFFFFFFFFU;
constexpr std::uint64_t kFrameSeed = 20250117;

struct NamedVector {
  std::string name;
  SparseVector vector;
};

inline Bytes encoded(const std::string& spec, const SparseVector& vector, std::vector<float>* received = nullptr) {
  Bytes frame;
  Codec(spec).encode(vector, frame, received);
  return frame;
}

inline std::vector<std::string> names_of(std::span<const CodecInfo> infos) {
  std::vector<std::string> names;
  for (const CodecInfo& info : infos) names.emplace_back(info.name);
  return names;
}

// A value format with one scale for each block of values.
inline bool has_blocks(const std::string& values) { return values.starts_with("int"); }

// The values that must be decoded; only for formats without a scale.
inline std::vector<float> rounded(const std::vector<float>& values, const std::string& format) {
  std::vector<float> result = values;
  for (float& x : result) {
    if (format == "f16") x = reference::from_f16(reference::to_f16(x));
    if (format == "bf16") x = reference::from_bf16(reference::to_bf16(x));
  }
  return result;
}

// ---- which entries

// `count` random indices below `dim`.
inline Indices random_indices(std::uint64_t dim, std::size_t count, std::uint64_t seed) {
  reference::Random random(seed);
  if (count * 64 < dim) {
    std::set<std::uint32_t> drawn;
    while (drawn.size() < count) drawn.insert(static_cast<std::uint32_t>(random.below(dim)));
    return {drawn.begin(), drawn.end()};
  }
  std::vector<bool> present(dim);
  for (std::size_t left = count; left > 0;) {
    const std::size_t i = random.below(dim);
    if (!present[i]) --left;
    present[i] = true;
  }
  Indices indices;
  for (std::size_t i = 0; i < dim; ++i) {
    if (present[i]) indices.push_back(static_cast<std::uint32_t>(i));
  }
  return indices;
}

// `count` entries in runs of `shortest` to `longest`, with gaps of about the same length.
inline Indices runs(std::size_t count, std::size_t shortest, std::size_t longest, std::uint64_t seed) {
  reference::Random random(seed);
  Indices indices;
  std::uint32_t next = 0;
  while (indices.size() < count) {
    next += static_cast<std::uint32_t>(1 + random.below(longest));
    const std::size_t length = shortest + random.below(longest - shortest + 1);
    for (std::size_t i = 0; i < length && indices.size() < count; ++i) indices.push_back(next++);
  }
  return indices;
}

inline Indices every_nth(std::size_t count, std::uint32_t first, std::uint32_t step) {
  Indices indices;
  for (std::size_t i = 0; i < count; ++i) indices.push_back(first + static_cast<std::uint32_t>(i) * step);
  return indices;
}

// Dense around a few random indices of a long vector.
inline Indices clustered(std::uint64_t dim, std::size_t count, std::uint64_t seed) {
  reference::Random random(seed);
  std::set<std::uint32_t> drawn;
  std::size_t centre = 0;
  for (std::size_t i = 0; drawn.size() < count; ++i) {
    if (i % 97 == 0) centre = random.below(dim);
    const double near = static_cast<double>(centre) + 20 * random.normal();
    if (near >= 0 && near < static_cast<double>(dim)) drawn.insert(static_cast<std::uint32_t>(near));
  }
  return {drawn.begin(), drawn.end()};
}

// ---- which values

// Zeros of both signs, the smallest and largest numbers of each format, and numbers next to a tie of rounding.
inline reference::Numbers corners(std::size_t count) {
  const std::vector<float> all = {
      0.0F,        -0.0F,        FLT_TRUE_MIN,    -FLT_TRUE_MIN, FLT_MIN,    -0x1p-127F, FLT_MAX,      -FLT_MAX,
      65504.0F,    65519.996F,   65520.0F,        -65520.0F,     -65536.0F,  0x1p-24F,   0x1p-25F,     -0x1.8p-25F,
      0x1.004p0F,  -0x1.00cp0F,  0x1.01p0F,       -0x1.03p0F,    0x1.002p0F, 0x1.006p0F, 0x1.ffcp-15F, -0x1.ffep-15F,
      0x1.fep127F, -0x1.ffp127F, 0x1.fefffep127F, 1.0F,          -1.0F,      3.14159274F};
  reference::Numbers values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = all[i * 7 % all.size()];  // 7 and 30 share no factor
  return values;
}

// The kinds of values, numbered: 0 is corners(), then comes the catalogue of gradients.
inline std::size_t value_kinds() { return reference::catalogue().size() + 1; }
inline reference::Numbers values_of_kind(std::size_t kind, std::size_t count) {
  kind %= value_kinds();
  return kind == 0 ? corners(count) : reference::catalogue()[kind - 1].make(count, 0, kFrameSeed);
}
inline std::string kind_name(std::size_t kind) {
  kind %= value_kinds();
  return kind == 0 ? "corners" : reference::catalogue()[kind - 1].name;
}

inline SparseVector vector_of(std::uint64_t dim, Indices indices, std::size_t kind) {
  SparseVector vector;
  vector.dim = dim;
  vector.values = values_of_kind(kind, indices.size());
  vector.indices = std::move(indices);
  return vector;
}

inline SparseVector full_vector(reference::Numbers values) {
  SparseVector vector;
  vector.dim = values.size();
  vector.values = std::move(values);
  return vector;
}

// A vector as Random-k makes it.
inline SparseVector drawn_vector(std::vector<Draw::Unit> units, std::size_t kind, std::uint32_t rank = 3) {
  SparseVector vector;
  vector.draw = {.seed = 0xFEDCBA9876543210U, .step = (std::uint64_t{7} << 32U) + 5, .rank = rank, .role = 1};
  vector.draw.units = std::move(units);
  for (std::size_t u = 0; u < vector.draw.units.size(); ++u) {
    const Draw::Unit& unit = vector.draw.units[u];
    for (const std::uint32_t position : reference::draw_positions(vector.draw, u, unit.k, unit.size)) {
      vector.indices.push_back(static_cast<std::uint32_t>(vector.dim + position));
    }
    vector.dim += unit.size;
  }
  vector.values = values_of_kind(kind, vector.indices.size());
  return vector;
}

// ---- vectors

// Around the widths of SIMD vectors, the blocks of scales and the lanes of the Golomb code.
inline std::vector<std::size_t> frame_lengths() {
  return {0, 1, 2, 3, 15, 16, 17, 255, 256, 257, 1023, 1024, 1025, 1026, 1027, 4099};
}

// Every shape with `count` entries; dims are at most `largest_dim`.
inline std::vector<NamedVector> shapes(std::size_t count, std::size_t kind, std::uint64_t largest_dim) {
  std::vector<NamedVector> all;
  const auto add = [&](const char* shape, std::uint64_t dim, Indices indices) {
    if (dim > largest_dim) return;
    const std::string name = std::string(shape) + ", count " + std::to_string(count) + ", " + kind_name(kind);
    all.push_back({name, vector_of(dim, std::move(indices), kind)});
    ++kind;
  };
  const auto n = static_cast<std::uint32_t>(count);
  add("every index", n, every_nth(count, 0, 1));
  add("all but the first", n + 1, every_nth(count, 1, 1));
  add("all but the last", n + 1, every_nth(count, 0, 1));
  add("alternating", 2 * n + 1, every_nth(count, 1, 2));
  add("alternating from 0", 2 * n, every_nth(count, 0, 2));
  add("one in three", 3 * n + 17, every_nth(count, 2, 3));
  add("random, half", 2 * n + 1, random_indices(2 * n + 1, count, kFrameSeed));
  add("random, a tenth", 10 * n + 9, random_indices(10 * n + 9, count, kFrameSeed + 1));
  add("random, a thousandth", 1000 * n + 9, random_indices(1000 * n + 9, count, kFrameSeed + 2));
  const Indices in_runs = runs(count, 1, 40, kFrameSeed + 3);
  add("runs", count == 0 ? 5 : in_runs.back() + 1, in_runs);
  const Indices in_pairs = runs(count, 2, 2, kFrameSeed + 3);
  add("pairs", 100 * n + 50, in_pairs);
  add("clustered", 1000 * n + 1000, clustered(1000 * n + 1000, count, kFrameSeed + 4));
  add("random, of 2^32 - 1", kLargestDim, random_indices(kLargestDim, count, kFrameSeed + 5));
  add("clustered, of 2^32 - 1", kLargestDim, clustered(kLargestDim, count, kFrameSeed + 6));
  if (count == 0) return all;
  add("at the far end", kLargestDim, every_nth(count, static_cast<std::uint32_t>(kLargestDim) - n, 1));
  if (count == 1) return all;
  for (const std::size_t last_ones : {std::size_t{1}, count / 2}) {
    Indices one_gap = every_nth(count, 0, 1);
    const auto jump = static_cast<std::uint32_t>(kLargestDim - count);
    for (std::size_t i = count - last_ones; i < count; ++i) one_gap[i] += jump;
    add("one huge gap", kLargestDim, one_gap);
  }
  return all;
}

// Vectors as Random-k draws them, with `count` entries.
inline std::vector<NamedVector> drawn_shapes(std::size_t count, std::size_t kind) {
  const auto k = static_cast<std::uint32_t>(count);
  std::vector<NamedVector> all;
  for (const std::vector<Draw::Unit>& units : std::vector<std::vector<Draw::Unit>>{
           {{k + 1, k}},
           {{2 * k + 1, k}},
           {{3 * k / 2 + 1, k}},
           {{100 * k + 1, k}},
           {{0xFFFFFFFFU, k}},
           {{7, 0}, {k + 5, k}},
           {{10, k < 4 ? 0U : 4U}, {0, 0}, {1, 0}, {3 * k + 1, k < 4 ? k : k - 4}, {5, 0}}}) {
    all.push_back(
        {"drawn " + std::to_string(count) + " from " + std::to_string(units.size()) + " units, " + kind_name(kind),
         drawn_vector(units, kind)});
    ++kind;
  }
  return all;
}

// Vectors that the codec of that name can encode.
inline std::vector<NamedVector> vectors_for(const std::string& codec, std::size_t count, std::size_t kind) {
  if (codec == "seed") return drawn_shapes(count, kind);
  const std::uint64_t largest_dim = codec == "bitmap" ? 10'000'000 : kLargestDim;
  std::vector<NamedVector> all = shapes(count, kind, largest_dim);
  if (codec == "auto") {
    for (NamedVector& drawn : drawn_shapes(count, kind)) all.push_back(std::move(drawn));
  }
  return all;
}

}  // namespace sparsewire
