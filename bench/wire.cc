#include "wire.h"

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <stdexcept>
#include <vector>

#include "mlp.h"
#include "sparsewire/codec.h"
#include "sparsewire/sparse_vector.h"
#include "sparsewire/support/half.h"
#include "supports.h"
#include "zstd/zstd.h"

namespace sparsewire::bench {
namespace {

struct Size {
  double all;      // bits per entry of the whole frame
  double indices;  // bits per entry of all that is not values: indices and header
  double values;   // bits per entry
  std::string codec;
};

Size size_of(const SparseVector& vector, const std::string& spec) {
  std::vector<std::byte> frame;
  Codec(spec).encode(vector, frame);
  FrameInfo info;
  if (inspect(frame, info) != DecodeStatus::ok) throw std::runtime_error("the frame cannot be decoded");
  const auto bits = [&](std::size_t bytes) {
    return 8.0 * static_cast<double>(bytes) / static_cast<double>(info.count);
  };
  return {bits(info.frame_bytes), bits(info.frame_bytes - info.value_bytes), bits(info.value_bytes),
          info.codec.substr(0, info.codec.find(':'))};
}

// With normal values.
Size size_of(std::size_t n, Indices indices, const std::string& spec) {
  SparseVector vector{.dim = n, .indices = std::move(indices), .values = {}, .draw = {}};
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal;
  vector.values.resize(vector.indices.size());
  for (float& value : vector.values) value = normal(random);
  return size_of(vector, spec);
}

Cells random_cells(std::size_t n) {
  constexpr double kLimit = 1.02;
  constexpr double kAutoLimit = 1.005;  // times golomb
  Cells cells = {{"random support", "entropy, bits", "golomb, header included", "times entropy", "at most", "",
                  "auto, times golomb", "at most", ""}};
  for (const double ratio : {0.1, 0.03, 0.01, 0.003, 0.001, 0.0003, 0.0001}) {
    const std::size_t k = entries(ratio, n);
    const double bound = entropy_bound_index_bits(n, k);
    const Indices indices = random_support(n, k);
    const double bits = size_of(n, indices, "golomb").indices;
    const double by_auto = size_of(n, indices, "auto").indices;
    cells.push_back({fmt::format("{:g} %", 100 * ratio), fmt::format("{:.3f}", bound), fmt::format("{:.3f}", bits),
                     fmt::format("{:.4f}", bits / bound), fmt::format("{:.2f}", kLimit), held(bits <= kLimit * bound),
                     fmt::format("{:.4f}", by_auto / bits), fmt::format("{:.3f}", kAutoLimit),
                     held(by_auto <= kAutoLimit * bits)});
  }
  return cells;
}

Cells clustered_cells(std::size_t n) {
  constexpr double kLimit = 1.005;
  const std::vector<std::pair<std::string, std::function<Indices(std::size_t)>>> kinds = {
      {"runs of 2 to 32", [&](std::size_t k) { return runs(n, k, 2, 32); }},
      {"runs of 2", [&](std::size_t k) { return runs(n, k, 2, 2); }},
      {"hot rows", [&](std::size_t k) { return hot_rows(n, k); }},
      {"hot columns", [&](std::size_t k) { return hot_columns(n, k); }},
  };
  Cells cells = {
      {"clustered support", "golomb, bits", "times random", "at most", "", "auto, bits", "times random", "by"}};
  for (const double ratio : {0.1, 0.01, 0.001}) {
    const std::size_t k = entries(ratio, n);
    const double random = size_of(n, random_support(n, k), "golomb").indices;
    for (const auto& [name, make] : kinds) {
      const Indices indices = make(k);
      const double golomb = size_of(n, indices, "golomb").indices;
      const Size shortest = size_of(n, indices, "auto");
      cells.push_back({fmt::format("{}, {:g} %", name, 100 * ratio), fmt::format("{:.3f}", golomb),
                       fmt::format("{:.3f}", golomb / random), fmt::format("{:.3f}", kLimit),
                       held(golomb <= kLimit * random && shortest.indices <= kLimit * random),
                       fmt::format("{:.3f}", shortest.indices), fmt::format("{:.3f}", shortest.indices / random),
                       shortest.codec});
    }
  }
  return cells;
}

// Bytes of numbers, the first byte of each, then the second of each, and so on: as one shuffles them for a compressor.
template <class T>
std::vector<std::byte> shuffled(const std::vector<T>& numbers) {
  std::vector<std::byte> bytes;
  for (std::size_t shift = 0; shift < sizeof(T) * 8; shift += 8) {
    for (const T number : numbers) bytes.push_back(static_cast<std::byte>(number >> shift & 0xFF));
  }
  return bytes;
}

std::vector<std::byte> shuffled_gaps(const Indices& indices) {
  std::vector<std::uint32_t> gaps;
  for (std::size_t i = 0; i < indices.size(); ++i) gaps.push_back(i == 0 ? indices[0] : indices[i] - indices[i - 1]);
  return shuffled(gaps);
}

std::vector<std::uint16_t> as_bf16(const std::vector<float>& values) {
  std::vector<std::uint16_t> halves;
  for (const float value : values) halves.push_back(to_bf16(value));
  return halves;
}

// Bits for each of `count` entries; "-" without zstd.
std::string zstd_bits(const std::vector<std::byte>& data, int level, std::size_t count) {
  const auto size = zstd_size(data, level);
  return size ? fmt::format("{:.3f}", 8.0 * static_cast<double>(*size) / static_cast<double>(count)) : "-";
}

// The entropy of bf16 values, each drawn by itself: what an ideal code of fixed tables needs.
double entropy_of_bf16(const std::vector<float>& values) {
  std::map<std::uint16_t, std::size_t> counts;
  for (const std::uint16_t half : as_bf16(values)) ++counts[half];
  double bits = 0;
  for (const auto& [half, count] : counts) {
    const double share = static_cast<double>(count) / static_cast<double>(values.size());
    bits -= share * std::log2(share);
  }
  return bits;
}

struct Kind {
  std::string name;
  SparseVector vector;
  double generator = 0;        // entropy of the support, if known
  double most_index_bits = 0;  // 0: no limit
  double most_value_bits = 0;  // as bf16
  double most_f32_bits = 0;
};

SparseVector with_ones(std::size_t n, Indices indices) {
  std::vector<float> ones(indices.size(), 1.0F);
  return {.dim = n, .indices = std::move(indices), .values = std::move(ones), .draw = {}};
}

std::string limit_text(double most) { return most > 0 ? fmt::format("{:g}", most) : ""; }
std::string limit_held(double bits, double most) { return most > 0 ? held(bits <= most) : ""; }

Cells support_cells(const std::vector<Kind>& kinds) {
  Cells cells = {
      {"bits an index", "random", "generator", "golomb", "zstd-3", "zstd-19", "adaptive", "auto", "by", "at most", ""}};
  for (const Kind& kind : kinds) {
    const SparseVector& vector = kind.vector;
    const std::vector<std::byte> gaps = shuffled_gaps(vector.indices);
    const Size shortest = size_of(vector, "auto");
    cells.push_back({kind.name, fmt::format("{:.3f}", entropy_bound_index_bits(vector.dim, vector.size())),
                     kind.generator > 0 ? fmt::format("{:.3f}", kind.generator) : "",
                     fmt::format("{:.3f}", size_of(vector, "golomb").indices), zstd_bits(gaps, 3, vector.size()),
                     zstd_bits(gaps, 19, vector.size()), fmt::format("{:.3f}", size_of(vector, "adaptive").indices),
                     fmt::format("{:.3f}", shortest.indices), shortest.codec, limit_text(kind.most_index_bits),
                     limit_held(shortest.indices, kind.most_index_bits)});
  }
  return cells;
}

Cells value_cells(const std::vector<Kind>& kinds) {
  Cells cells = {{"bits a value", "entropy of bf16", "zstd-3", "zstd-19", "bf16", "at most", "", "f32", "at most", "",
                  "f16", "int8", "int4"}};
  for (const Kind& kind : kinds) {
    const SparseVector& vector = kind.vector;
    const auto bits = [&](const char* format) { return size_of(vector, fmt::format("auto:values={}", format)).values; };
    const std::vector<std::byte> halves = shuffled(as_bf16(vector.values));
    cells.push_back(
        {kind.name, fmt::format("{:.3f}", entropy_of_bf16(vector.values)), zstd_bits(halves, 3, vector.size()),
         zstd_bits(halves, 19, vector.size()), fmt::format("{:.3f}", bits("bf16")), limit_text(kind.most_value_bits),
         limit_held(bits("bf16"), kind.most_value_bits), fmt::format("{:.3f}", bits("f32")),
         limit_text(kind.most_f32_bits), limit_held(bits("f32"), kind.most_f32_bits),
         fmt::format("{:.3f}", bits("f16")), fmt::format("{:.3f}", bits("int8")), fmt::format("{:.3f}", bits("int4"))});
  }
  return cells;
}

Cells entry_cells(const std::vector<Kind>& kinds) {
  constexpr double kLimit = 15.0;
  Cells cells = {{"bits an entry, bf16", "golomb, as 0.5.0", "zstd-3", "zstd-19", "auto", "at most", ""}};
  for (const Kind& kind : kinds) {
    const SparseVector& vector = kind.vector;
    std::vector<std::byte> all = shuffled_gaps(vector.indices);
    for (const std::byte byte : shuffled(as_bf16(vector.values))) all.push_back(byte);
    const double bits = size_of(vector, "auto:values=bf16").all;
    const bool is_first = &kind == &kinds.front();
    cells.push_back({kind.name, fmt::format("{:.3f}", size_of(vector, "golomb:values=bf16").all),
                     zstd_bits(all, 3, vector.size()), zstd_bits(all, 19, vector.size()), fmt::format("{:.3f}", bits),
                     is_first ? fmt::format("{:.1f}", kLimit) : "", is_first ? held(bits <= kLimit) : ""});
  }
  return cells;
}

// Four workers of a training.
std::vector<Kind> training_kinds(Bench& bench) {
  constexpr int kSteps = 100;
  const auto frames = train_mlp({0.01, 0.001}, kSteps, [&](int done) { bench.progress("training", done, kSteps); });
  bench.clear_progress();
  return {{.name = "mlp, 1 %",
           .vector = frames[0].sent,
           .most_index_bits = 7.6,
           .most_value_bits = 7.3,
           .most_f32_bits = 25},
          {.name = "mlp, 0.1 %", .vector = frames[1].sent, .most_index_bits = 9.9, .most_value_bits = 7.2},
          {.name = "mlp, sum of four at 1 %", .vector = frames[0].sum},
          {.name = "mlp, sum of four at 0.1 %", .vector = frames[1].sum}};
}

std::string kinds_tables(Bench& bench, Form form) {
  const std::size_t n = bench.n();
  const std::vector<Kind> trained = training_kinds(bench);
  const auto known = [&](const char* name, KnownSupport support, double most) {
    return Kind{.name = name,
                .vector = with_ones(n, std::move(support.indices)),
                .generator = support.entropy,
                .most_index_bits = most};
  };
  std::vector<Kind> supports = {known("layers, drawn, 1 %", layers(n, 0.01, Spacing::random), 7.35),
                                known("layers, evenly spaced, 1 %", layers(n, 0.01, Spacing::even), 7.35),
                                known("rows, 1 %", rows(n), 5.4)};
  std::vector<Kind> values;
  for (const int degrees : {3, 4, 5}) {
    values.push_back({.name = fmt::format("Student's t, {} degrees, layered, 1 %", degrees),
                      .vector = largest_of_student(n, degrees),
                      .most_value_bits = 8.4});
  }
  values.push_back({.name = "Gauss, 1 %", .vector = largest_of_normal(n), .most_value_bits = 7.0});
  supports.insert(supports.end(), trained.begin(), trained.end());
  values.insert(values.end(), trained.begin(), trained.end());
  return grid(support_cells(supports), form) + grid(value_cells(values), form) + grid(entry_cells(trained), form);
}

Cells format_cells(std::size_t n) {
  constexpr double kLimit = 9.7;
  const std::size_t k = n / 64;
  const Indices indices = random_support(n, k);
  Cells cells = {{"whole frame, density 1/64", "bits an entry", "at most", ""}};
  for (const CodecInfo& format : value_formats()) {
    const double bits = size_of(n, indices, fmt::format("auto:values={}", format.name)).all;
    const bool has_limit = format.name == "int2";
    cells.push_back({std::string(format.name), fmt::format("{:.3f}", bits),
                     has_limit ? fmt::format("{:.1f}", kLimit) : "", has_limit ? held(bits <= kLimit) : ""});
  }
  return cells;
}

}  // namespace

std::string wire_table(Bench& bench, Form form) {
  const std::size_t n = bench.n();
  return grid(random_cells(n), form) + grid(clustered_cells(n), form) + kinds_tables(bench, form) +
         grid(format_cells(n), form);
}

}  // namespace sparsewire::bench
