#include "wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <vector>

#include "bench.h"
#include "sparsewire/codec.h"
#include "sparsewire/sparse_vector.h"

namespace sparsewire::bench {
namespace {

using Indices = std::vector<std::uint32_t>;
using Random = std::mt19937_64;

// A support of k entries: calls more(random, choose), which chooses some, until there are k.
template <class More>
Indices support(std::size_t n, std::size_t k, More more) {
  Random random(n + k);
  std::vector<bool> chosen(n);
  std::size_t count = 0;
  const auto choose = [&](std::size_t index) {
    if (index >= n || count == k || chosen[index]) return;
    chosen[index] = true;
    ++count;
  };
  while (count < k) more(random, choose);
  Indices indices;
  for (std::size_t i = 0; i < n; ++i) {
    if (chosen[i]) indices.push_back(static_cast<std::uint32_t>(i));
  }
  return indices;
}

Indices random_support(std::size_t n, std::size_t k) {
  return support(n, k, [&](Random& random, auto choose) { choose(random() % n); });
}

Indices runs(std::size_t n, std::size_t k, std::size_t shortest, std::size_t longest) {
  return support(n, k, [&](Random& random, auto choose) {
    const std::size_t begin = random() % n;
    const std::size_t length = shortest + random() % (longest - shortest + 1);
    for (std::size_t i = 0; i < length; ++i) choose(begin + i);
  });
}

constexpr std::size_t kRow = 768;

// Rows of a table with 30 % of their entries chosen, as in the gradient of a word embedding; no entry in the other
// rows.
Indices hot_rows(std::size_t n, std::size_t k) {
  return support(n, k, [&](Random& random, auto choose) {
    const std::size_t begin = random() % (n / kRow) * kRow;
    for (std::size_t i = 0; i < kRow; ++i) {
      if (random() % 10 < 3) choose(begin + i);
    }
  });
}

// All entries of some columns of the table.
Indices hot_columns(std::size_t n, std::size_t k) {
  return support(n, k, [&](Random& random, auto choose) {
    const std::size_t column = random() % kRow;
    for (std::size_t begin = 0; begin < n; begin += kRow) choose(begin + column);
  });
}

struct Size {
  double all;      // bits per entry of the whole frame
  double indices;  // bits per entry of all that is not values: indices and header
  std::string codec;
};

Size size_of(std::size_t n, Indices indices, const std::string& spec) {
  SparseVector vector{.dim = n, .indices = std::move(indices), .values = {}, .draw = {}};
  Random random(1);
  std::normal_distribution<float> normal;
  vector.values.resize(vector.indices.size());
  for (float& value : vector.values) value = normal(random);
  std::vector<std::byte> frame;
  Codec(spec).encode(vector, frame);
  FrameInfo info;
  if (inspect(frame, info) != DecodeStatus::ok) throw std::runtime_error("the frame cannot be decoded");
  const auto bits = [&](std::size_t bytes) {
    return 8.0 * static_cast<double>(bytes) / static_cast<double>(info.count);
  };
  return {bits(info.frame_bytes), bits(info.frame_bytes - info.value_bytes),
          info.codec.substr(0, info.codec.find(':'))};
}

Cells random_cells(std::size_t n) {
  constexpr double kLimit = 1.02;
  Cells cells = {{"random support", "entropy, bits", "golomb, header included", "times entropy", "at most", ""}};
  for (const double ratio : {0.1, 0.03, 0.01, 0.003, 0.001, 0.0003, 0.0001}) {
    const std::size_t k = entries(ratio, n);
    const double bound = entropy_bound_index_bits(n, k);
    const double bits = size_of(n, random_support(n, k), "golomb").indices;
    cells.push_back({fmt::format("{:g} %", 100 * ratio), fmt::format("{:.3f}", bound), fmt::format("{:.3f}", bits),
                     fmt::format("{:.4f}", bits / bound), fmt::format("{:.2f}", kLimit), held(bits <= kLimit * bound)});
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

std::string wire_table(std::size_t n, Form form) {
  return grid(random_cells(n), form) + grid(clustered_cells(n), form) + grid(format_cells(n), form);
}

}  // namespace sparsewire::bench
