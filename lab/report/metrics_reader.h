// Reads metrics files that anybody may have written, cut off or damaged: what can be read is kept, and notices say what
// could not. Memory does not depend on the length of the file or of its lines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "report/series.h"

namespace sparsewire::report {

// Longer lines are left out: those of a training have 1 KiB.
inline constexpr std::size_t kLongestLine = 1 << 20;

struct Metrics {
  std::string name;  // of the file, for notices
  Series series;
  std::uint64_t lines = 0;           // in the file
  std::vector<std::string> notices;  // whole sentences, without the name
  std::optional<double> steps;       // how many the training has, if a line says so

  // The number in the last row that has one.
  std::optional<double> last(std::string_view column) const;
  // The first step at which a loss was not finite.
  std::optional<std::uint64_t> diverged_at() const;
};

class MetricsReader {
 public:
  // Thins to `most` rows, see Series::thin().
  explicit MetricsReader(std::string name, std::size_t most);

  // The next bytes of the file, in pieces of any size.
  void add(std::string_view bytes);
  // At the end of the file. A last line without its end is left out.
  Metrics finish();

 private:
  struct Count {
    std::uint64_t times = 0;
    std::uint64_t first = 0;  // number of the line, from 1
  };
  void take_line(std::string_view line);
  void take_row(Row row);
  void note(Count& count) const;
  static std::string lines_text(const Count& count, const char* one, const char* many);

  std::size_t most_;
  Metrics metrics_;
  std::string begun_;  // a line whose end has not come yet
  bool is_too_long_ = false;
  std::size_t next_column_ = 0;  // lines of a file mostly have the same fields in the same order
  Count not_json_;
  Count without_step_;
  Count too_long_;
  Count went_back_;
  bool has_too_many_columns_ = false;
  std::vector<std::string> changes_;
  std::vector<std::string> unknown_;
};

// Reads a file whole, or less than 256 MiB of a pipe. Throws UsageError if it cannot be opened or read, or is longer.
Metrics read_metrics(const std::string& path, std::string name, std::size_t most);

// Whether this version knows what the column is.
bool is_known_column(std::string_view name);

// "loss", "test_loss", "train_objective"
bool is_loss(std::string_view name);

}  // namespace sparsewire::report
