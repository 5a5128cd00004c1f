// The data of a report, as the page gets it: docs/guides/report.md describes the JSON. Written by the collectors
// (collect.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "report/series.h"
#include "text/json.h"

namespace sparsewire::report {

using train::Json;

inline constexpr int kSchema = 1;
inline constexpr std::size_t kMostLinesOfARun = 5000;
inline constexpr std::size_t kMostLines = 100000;  // of all runs

inline constexpr const char* kFinished = "finished";
inline constexpr const char* kDiverged = "diverged";
inline constexpr const char* kRunning = "running";
inline constexpr const char* kInterrupted = "interrupted";

// A line of the charts: a method, with a ratio where it takes one.
struct ReportedMethod {
  std::string name;
  std::optional<double> ratio;
  std::string label;  // unique in the report
  std::optional<std::string> spec;
};

struct ReportedRun {
  std::string id;
  std::size_t method = 0;     // index in Document::methods
  std::string phase = "run";  // tune, judge, pilot and probe in a study
  std::optional<std::uint64_t> seed = {};
  std::optional<double> lr = {};
  bool is_chosen = true;  // shown in the main charts
  std::string status = kFinished;
  std::optional<std::uint64_t> diverged_at = {};
  std::optional<double> seconds = {};
  Json config = Json::object();
  Json result = Json::object();
  std::uint64_t lines = 0;  // in its file
  Series series = {};
};

struct Document {
  std::string kind = "metrics";  // study, compare, reproduce, metrics
  std::string title;
  std::optional<std::string> problem = {};
  std::vector<std::string> notices = {};
  std::optional<double> live = {};  // seconds after which the page loads itself again
  Json summary = nullptr;           // of a study: its summary.json
  std::vector<ReportedMethod> methods = {};
  std::vector<ReportedRun> runs = {};
  Json reproduction = nullptr;  // the JSON of `reproduce`

  bool is_finished = false;  // nothing will be added; not known: false
  bool is_empty() const { return runs.empty() && summary.is_null() && reproduction.is_null(); }
};

// Thins what is too long, and adds a notice about it.
void thin(Document& document);

// The number of weights, as lines of metrics let it be known.
std::optional<std::uint64_t> weights_of(const Series& series);

// The JSON. Valid UTF-8, whatever came from files, and without letters that mean something in HTML: < is \u003c.
std::string to_text(const Document& document);

// The same letters of any JSON text.
std::string escaped_for_html(std::string_view json);

}  // namespace sparsewire::report
