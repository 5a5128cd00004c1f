// LIBSVM files: a line for each sample, `label index:value index:value ...`, indices from 1 upwards, what is not there
// is 0. Comments begin with #.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sparsewire::train {

// Rows of numbers of which most are 0.
struct SparseRows {
  std::vector<std::uint64_t> begin{0};  // where each row starts in the two below, and where the last one ends
  std::vector<std::uint32_t> index;     // from 0, ascending in each row
  std::vector<double> value;
  std::uint32_t dim = 0;  // above every index

  std::size_t size() const noexcept { return begin.size() - 1; }
  std::span<const std::uint32_t> indices(std::size_t row) const noexcept {
    return std::span(index).subspan(begin[row], begin[row + 1] - begin[row]);
  }
  std::span<const double> values(std::size_t row) const noexcept {
    return std::span(value).subspan(begin[row], begin[row + 1] - begin[row]);
  }
};

struct LabelledRows {
  SparseRows rows;
  std::vector<std::uint32_t> label;  // of each row: its place in `labels`
  // As first written. Numbers that are equal are one label ("1", "+1", "1.0"). Numbers first, ascending, then words.
  std::vector<std::string> labels;
};

// The largest index that is believed. The largest public sets have 5e7; weights for this many take 1 GiB.
inline constexpr std::uint32_t kMaxLibsvmIndex = 1U << 28;

// `name` is for messages: "x.txt:3: index 0 is not in [1, 268435456]". Throws UsageError.
LabelledRows parse_libsvm(std::string_view text, std::string_view name);
// Throws UsageError, also if the file cannot be read.
LabelledRows read_libsvm(const std::string& path);

}  // namespace sparsewire::train
