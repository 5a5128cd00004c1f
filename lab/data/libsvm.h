// LIBSVM files: one line per sample, `label index:value index:value ...`. Indices start at 1 and ascend; entries that
// are not listed are 0. Comments begin with #.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sparsewire::train {

// A matrix of which most entries are 0, row by row.
struct SparseRows {
  std::vector<std::uint64_t> begin{0};  // where each row begins in the two vectors below, and where the last one ends
  std::vector<std::uint32_t> index;     // from 0, ascending in each row
  std::vector<double> value;
  std::uint32_t dim = 0;  // number of columns

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
  std::vector<std::uint32_t> label;  // of each row: a position in `labels`
  // As written at their first appearance. Equal numbers are one label ("1", "+1", "1.0"). Numbers come first,
  // ascending, then words.
  std::vector<std::string> labels;
  std::string fingerprint;  // of the text: "1234 bytes, CRC-32C 0badcafe"; empty if it was not read from a file
};

// The largest index that is accepted. The largest public data sets have 5e7; as many weights as this take 1 GiB.
inline constexpr std::uint32_t kMaxLibsvmIndex = 1U << 28;

// `name` is for messages: "x.txt:3: index '0' is not a whole number in [1, 268435456]". Throws UsageError.
LabelledRows parse_libsvm(std::string_view text, std::string_view name);
// Reads the file once, so it may be a pipe; it may be compressed with gzip. Throws UsageError, also if it cannot be
// read.
LabelledRows read_libsvm(const std::string& path);

// Numbers the labels of `data` as in `labels`, which are those of other data; compared as numbers where both are.
// Throws UsageError, with `name`, if there is one that is not among them.
void number_as(const std::vector<std::string>& labels, LabelledRows& data, std::string_view name);

}  // namespace sparsewire::train
