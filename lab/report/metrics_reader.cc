#include "report/metrics_reader.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "files/input.h"
#include "report/json_line.h"
#include "sparsewire/errors.h"

namespace sparsewire::report {
namespace {

constexpr double kNotFinite = std::numeric_limits<double>::quiet_NaN();
constexpr std::size_t kRowsInMemory = 4;    // times what is kept in the end
constexpr std::size_t kMostNamed = 20;      // changes and unknown fields that are named
constexpr std::size_t kLongestName = 100;   // of a column
constexpr std::size_t kLongestQuote = 300;  // of what is repeated in a notice
constexpr std::uint64_t kPiece = 1 << 20;
constexpr std::uint64_t kMostPieces = 256;  // of a pipe or a device, which may never end

// docs/guides/training.md has those of `train`, docs/start/pytorch.md those of the hook for PyTorch.
constexpr std::array<std::string_view, 64> kKnown = {"step",
                                                     "steps",
                                                     "loss",
                                                     "lr",
                                                     "seconds",
                                                     "entries_sent",
                                                     "entries_total",
                                                     "density",
                                                     "dense_bytes",
                                                     "bytes_up",
                                                     "bytes_down",
                                                     "bytes_served",
                                                     "sent_norm2",
                                                     "memory_norm2",
                                                     "server_memory_norm2",
                                                     "total_error",
                                                     "server_error",
                                                     "flags",
                                                     "went_dense",
                                                     "ns_gradient",
                                                     "ns_sift",
                                                     "ns_encode",
                                                     "ns_exchange",
                                                     "ns_decode",
                                                     "ns_merge",
                                                     "ns_apply",
                                                     "xi",
                                                     "gamma",
                                                     "owed_norm2",
                                                     "train_loss",
                                                     "train_objective",
                                                     "train_accuracy",
                                                     "validation_loss",
                                                     "validation_accuracy",
                                                     "test_loss",
                                                     "test_accuracy",
                                                     "distance",
                                                     "train_distance",
                                                     "validation_distance",
                                                     "test_distance",
                                                     "total_bytes_up",
                                                     "total_bytes_down",
                                                     "total_bytes_served",
                                                     "paper_bits_up",
                                                     "paper_bits_down",
                                                     "changed",
                                                     "skipped",
                                                     "rank",
                                                     "sent_norm",
                                                     "memory_norm",
                                                     "seconds_sift",
                                                     "seconds_encode",
                                                     "seconds_exchange",
                                                     "seconds_decode",
                                                     "seconds_merge",
                                                     "seconds_apply",
                                                     "factor_against_dense",
                                                     "rank_bytes_up",
                                                     "rank_bytes_down",
                                                     "train_error",
                                                     "test_error",
                                                     "validation_error",
                                                     "epoch",
                                                     "time"};

// Fields of the hook for PyTorch under the names, and in the units, of `train`.
struct Converted {
  std::string name;
  double number;
};
Converted converted(std::string_view name, double number) {
  constexpr std::string_view kSeconds = "seconds_";
  if (name == "memory_norm" || name == "sent_norm") return {std::string(name) + "2", number * number};
  if (name.starts_with(kSeconds) && is_known_column(name)) {
    return {"ns_" + std::string(name.substr(kSeconds.size())), number * 1e9};
  }
  return {std::string(name), number};
}

// With its escapes resolved, and not longer than a name may be.
std::string name_of(std::string_view written) {
  std::string name(written.substr(0, kLongestName));
  if (written.size() > kLongestName || name.find('\\') == std::string::npos) return name;
  const auto parsed = nlohmann::json::parse('"' + name + '"', nullptr, /*allow_exceptions=*/false);
  return parsed.is_string() ? parsed.get<std::string>() : name;
}

std::string quoted(std::string_view text) {
  return std::string(text.substr(0, kLongestQuote)) + (text.size() > kLongestQuote ? "..." : "");
}

bool is_evaluated(std::string_view name) {
  return name == "total_bytes_up" || (name != "loss" && is_loss(name)) || name.ends_with("_accuracy");
}

}  // namespace

bool is_known_column(std::string_view name) { return std::find(kKnown.begin(), kKnown.end(), name) != kKnown.end(); }

bool is_loss(std::string_view name) {
  return name == "loss" || name.ends_with("_loss") || name == "train_objective" || name == "distance";
}

std::optional<double> Metrics::last(std::string_view column) const {
  const std::size_t index = series.find(column);
  if (index == Series::kNoColumn) return std::nullopt;
  for (auto row = series.rows().rbegin(); row != series.rows().rend(); ++row) {
    const double number = series.at(*row, index);
    if (!is_missing(number)) return number;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> Metrics::diverged_at() const {
  const std::size_t step = series.find("step");
  for (const Row& row : series.rows()) {
    for (std::size_t i = 0; i < row.values.size(); ++i) {
      const double number = row.values[i];
      if (is_missing(number) || std::isfinite(number) || !is_loss(series.names()[i])) continue;
      return static_cast<std::uint64_t>(series.at(row, step));
    }
  }
  return std::nullopt;
}

MetricsReader::MetricsReader(std::string name, std::size_t most) : most_(std::max(most, Series::kFewest)) {
  metrics_.name = std::move(name);
  metrics_.series.column("step");
}

void MetricsReader::add(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    const std::string_view piece = bytes.substr(0, end);
    if (begun_.size() + piece.size() > kLongestLine) {
      is_too_long_ = true;
      begun_.clear();
    }
    if (end == std::string_view::npos) {
      if (!is_too_long_) begun_ += piece;
      return;
    }
    ++metrics_.lines;
    if (is_too_long_) {
      note(too_long_);
    } else if (begun_.empty()) {
      take_line(piece);
    } else {
      begun_ += piece;
      take_line(begun_);
    }
    begun_.clear();
    is_too_long_ = false;
    bytes.remove_prefix(end + 1);
  }
}

void MetricsReader::note(Count& count) const {
  if (count.times++ == 0) count.first = metrics_.lines;
}

void MetricsReader::take_line(std::string_view line) {
  if (line.find_first_not_of(" \t\r") == std::string_view::npos) return;  // an empty one
  Row row{.line = metrics_.lines - 1, .values = {}};
  row.values.reserve(metrics_.series.names().size());
  std::string_view changed;
  std::optional<double> steps;
  const bool is_whole = scan_line(line, [&](const Field& field) {
    if (field.name == "changed" && field.kind == FieldKind::other) changed = field.raw;
    const auto& names = metrics_.series.names();
    const bool is_number = field.kind == FieldKind::number || field.kind == FieldKind::null;
    double number = field.kind == FieldKind::null ? kNotFinite : field.number;
    if (field.name == "steps" && is_number) steps = number;
    std::size_t column = next_column_;
    if (column >= names.size() || names[column] != field.name) {
      const std::string name = name_of(field.name);
      if (!is_known_column(name) && unknown_.size() <= kMostNamed &&
          std::find(unknown_.begin(), unknown_.end(), name) == unknown_.end()) {
        unknown_.push_back(name);
      }
      if (!is_number || name == "steps" || name == "flags" || name == "rank") return;
      const Converted known = converted(name, number);
      number = known.number;
      column = metrics_.series.column(known.name);
      if (column == Series::kNoColumn) {
        has_too_many_columns_ = true;
        return;
      }
    } else if (!is_number) {
      return;
    }
    next_column_ = column + 1;
    if (row.values.size() <= column) row.values.resize(column + 1, missing());
    row.values[column] = number;
    if (is_evaluated(names[column])) row.is_evaluation = true;
  });
  next_column_ = 0;
  if (!is_whole) return note(not_json_);
  const double step = metrics_.series.at(row, 0);
  if (is_missing(step) || !(step >= 0) || step > 1e18) return note(without_step_);
  if (!changed.empty()) {
    if (changes_.size() < kMostNamed) {
      changes_.push_back(fmt::format("options changed after step {:.0f}: {}", step, quoted(changed)));
    }
    return;
  }
  if (steps) metrics_.steps = steps;
  take_row(std::move(row));
}

// A file to which several runs have written: what a later one did again, counts.
void MetricsReader::take_row(Row row) {
  std::vector<Row>& rows = metrics_.series.rows();
  if (!rows.empty() && row.values[0] < rows.back().values[0]) {
    note(went_back_);
    const double step = row.values[0];
    rows.erase(std::find_if(rows.begin(), rows.end(), [&](const Row& one) { return one.values[0] >= step; }),
               rows.end());
  }
  rows.push_back(std::move(row));
  if (rows.size() > kRowsInMemory * most_) metrics_.series.thin(2 * most_);
}

std::string MetricsReader::lines_text(const Count& count, const char* one, const char* many) {
  return count.times == 1 ? fmt::format("line {} {}", count.first, one)
                          : fmt::format("{} lines {} (the first is line {})", count.times, many, count.first);
}

Metrics MetricsReader::finish() {
  std::vector<std::string>& notices = metrics_.notices;
  if (!begun_.empty() || is_too_long_) {
    ++metrics_.lines;
    if (is_too_long_) {
      note(too_long_);
    } else {
      notices.emplace_back("ends in mid-line; the last line was left out");
    }
  }
  if (not_json_.times > 0) {
    notices.push_back(lines_text(not_json_, "is not JSON, and was left out", "are not JSON, and were left out"));
  }
  if (without_step_.times > 0) {
    notices.push_back(lines_text(without_step_, "has no step, and was left out", "have no step, and were left out"));
  }
  if (too_long_.times > 0) {
    notices.push_back(
        lines_text(too_long_, "is longer than 1 MiB, and was left out", "are longer than 1 MiB, and were left out"));
  }
  if (went_back_.times > 0) {
    notices.push_back(fmt::format("steps go back in line {}{}: where steps were done again, the later lines are shown",
                                  went_back_.first, went_back_.times > 1 ? " and others" : ""));
  }
  if (!unknown_.empty()) {
    std::string names;
    for (std::size_t i = 0; i < std::min(unknown_.size(), kMostNamed); ++i) {
      names += (i == 0 ? "" : ", ") + unknown_[i];
    }
    notices.push_back(fmt::format("has fields that this version does not know: {}{}", names,
                                  unknown_.size() > kMostNamed ? ", and others" : ""));
  }
  if (has_too_many_columns_) {
    notices.push_back(fmt::format("has more than {} fields; the others were left out", Series::kMostColumns));
  }
  notices.insert(notices.end(), changes_.begin(), changes_.end());
  return std::move(metrics_);
}

Metrics read_metrics(const std::string& path, std::string name, std::size_t most) {
  files::Input input(path);
  MetricsReader reader(std::move(name), most);
  const bool ends = std::filesystem::is_regular_file(path);
  for (std::uint64_t pieces = 0; ends || pieces < kMostPieces; ++pieces) {
    const files::Bytes bytes = input.read(kPiece);
    reader.add(bytes.text());
    if (bytes.size < kPiece) return reader.finish();
  }
  throw UsageError(
      fmt::format("'{}' has 256 MiB or more and is not a regular file: save what it gives to a file", path));
}

}  // namespace sparsewire::report
