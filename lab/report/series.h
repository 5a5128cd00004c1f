// What is kept of a metrics file: columns of numbers, one row for each line. Long files are thinned while they are
// read, so memory does not depend on their length.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sparsewire::report {

// A number that a line does not have. It is a NaN, but not the one of a line that has NaN.
inline constexpr std::uint64_t kMissingBits = 0x7ff80000'5eed0001;
inline double missing() noexcept { return std::bit_cast<double>(kMissingBits); }
inline bool is_missing(double number) noexcept { return std::bit_cast<std::uint64_t>(number) == kMissingBits; }

struct Row {
  std::uint64_t line = 0;  // its number in the file, from 0
  bool is_evaluation = false;
  std::vector<double> values;  // by column; those behind its end are missing
};

class Series {
 public:
  // The column of this name, a new one if there is none; kNoColumn if there are kMostColumns.
  static constexpr std::size_t kMostColumns = 100;
  static constexpr std::size_t kNoColumn = static_cast<std::size_t>(-1);
  std::size_t column(std::string_view name);
  // kNoColumn if there is none.
  std::size_t find(std::string_view name) const noexcept;
  const std::vector<std::string>& names() const noexcept { return names_; }

  std::vector<Row>& rows() noexcept { return rows_; }
  const std::vector<Row>& rows() const noexcept { return rows_; }
  double at(const Row& row, std::size_t column) const noexcept {
    return column < row.values.size() ? row.values[column] : missing();
  }

  // Keeps at most `most` rows: the first, the last, evaluations if these are not more than half of it, and of each
  // bucket of equally many lines the first and those with the smallest and the largest loss. What is kept depends on
  // the rows alone, not on thinnings before. REQUIRES: most >= kFewest.
  static constexpr std::size_t kFewest = 10;
  void thin(std::size_t most);
  // Whether rows are missing.
  bool is_thinned() const noexcept { return is_thinned_; }

 private:
  std::vector<std::string> names_;
  std::vector<Row> rows_;
  bool is_thinned_ = false;
  bool has_special_evaluations_ = true;  // not if there are too many of them
};

}  // namespace sparsewire::report
