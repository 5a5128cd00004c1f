// The folder of a study (docs/guides/study.md), finished or not.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "files/input.h"
#include "report/collect.h"
#include "sparsewire/errors.h"
#include "study/method.h"
#include "study/record.h"
#include "text/counted.h"
#include "text/number.h"

namespace sparsewire::report {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostNamedRuns = 5;  // that could not be read

Json at_or_null(const Json& json, const char* key) {
  if (!json.is_object()) return nullptr;
  const auto found = json.find(key);
  return found == json.end() ? Json(nullptr) : *found;
}

std::string text_at(const Json& json, const char* key) {
  const Json value = at_or_null(json, key);
  return value.is_string() ? value.get<std::string>() : std::string();
}

std::optional<double> number_at(const Json& json, const char* key) {
  const Json value = at_or_null(json, key);
  return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
}

std::optional<std::uint64_t> count_at(const Json& json, const char* key) {
  const Json value = at_or_null(json, key);
  return value.is_number_unsigned() ? std::optional(value.get<std::uint64_t>()) : std::nullopt;
}

// Fields of a line of our own CSV files.
std::vector<std::string> fields_of(std::string_view line) {
  std::vector<std::string> fields(1);
  bool is_quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"') {
      const bool is_double = is_quoted && i + 1 < line.size() && line[i + 1] == '"';
      if (is_double) fields.back() += line[i++];
      is_quoted = is_double || !is_quoted;
    } else if (line[i] == ',' && !is_quoted) {
      fields.emplace_back();
    } else if (line[i] != '\r') {
      fields.back() += line[i];
    }
  }
  return fields;
}

std::uint64_t count_lines(const std::string& path) {
  constexpr std::uint64_t kAtATime = 1 << 20;
  files::Input input(path);
  std::uint64_t lines = 0;
  while (true) {
    const files::Bytes bytes = input.read(kAtATime);
    lines += static_cast<std::uint64_t>(std::count(bytes.text().begin(), bytes.text().end(), '\n'));
    if (bytes.size < kAtATime) return lines;
  }
}

// Which method a run is of. Two methods may share a run, if they have the same options in a cell: result.json then
// names one of them, and runs.csv, which is written at the end, both.
struct Place {
  std::string id;
  std::string method;
  std::string ratio;
};

std::vector<Place> places_of(const std::string& path) {
  std::vector<Place> places;
  if (!fs::is_regular_file(path)) return places;
  const files::Bytes bytes = files::read_file(path);
  std::string_view rest = bytes.text();
  std::vector<std::string> names;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::vector<std::string> fields = fields_of(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (names.empty()) {
      names = fields;
      continue;
    }
    const auto field = [&](const char* name) {
      const auto at = static_cast<std::size_t>(std::find(names.begin(), names.end(), name) - names.begin());
      return at < fields.size() ? fields[at] : std::string();
    };
    places.push_back({field("id"), field("method"), field("ratio")});
  }
  return places;
}

class StudyCollector {
 public:
  explicit StudyCollector(const std::string& folder) : folder_(folder) {}

  Document run() {
    document_.kind = "study";
    plan_ = read_or_note("plan.json");
    if (fs::exists(folder_ + "/summary.json")) document_.summary = read_or_note("summary.json");
    document_.is_finished = !document_.summary.is_null();
    read_plan();
    check_versions();
    read_runs();
    sort_runs();
    if (!document_.is_finished) note_what_is_missing();
    const std::string problem = text_at(at_or_null(plan_, "config"), "problem");
    document_.title = "Study" + (problem.empty() ? "" : ": " + problem);
    const std::string data = text_at(at_or_null(plan_, "data"), "name");
    if (!data.empty()) document_.title += " on " + data;
    if (plan_.is_object()) {
      const std::string start = text_at(plan_, "init_weights");
      document_.problem = problem_text(at_or_null(plan_, "config"), data, count_at(plan_, "weights")) +
                          (start.empty() ? "" : fmt::format(", every run from given weights ({})", start));
    }
    return std::move(document_);
  }

 private:
  Json read_or_note(const std::string& name) {
    try {
      Json json = read_json(folder_ + "/" + name);
      if (json.is_object()) return json;
      document_.notices.push_back(fmt::format("'{}/{}' has no JSON object", folder_, name));
      return nullptr;
    } catch (const UsageError& error) {
      document_.notices.emplace_back(error.what());
      return nullptr;
    }
  }

  // Rows of the charts: every method with each ratio, as the summary has them.
  void read_plan() {
    const Json ratios = at_or_null(plan_, "ratio");
    for (const Json& one : at_or_null(plan_, "methods")) {
      const std::string spec = text_at(one, "spec");
      const std::string name = text_at(one, "name");
      bool takes_ratio = true;
      try {
        takes_ratio = study::Method(spec).takes_ratio();
      } catch (const UsageError&) {  // of another version
      }
      if (!takes_ratio) {
        method_of(spec, "", name);
        continue;
      }
      for (const Json& ratio : ratios) method_of(spec, ratio.is_string() ? ratio.get<std::string>() : "", name);
    }
  }

  // Its index; a new one if there is none yet.
  std::size_t method_of(const std::string& spec, const std::string& ratio, const std::string& name) {
    const auto [found, is_new] = methods_.try_emplace({spec, ratio}, document_.methods.size());
    if (!is_new) return found->second;
    const std::string& shown = name.empty() ? spec : name;
    document_.methods.push_back({.name = shown,
                                 .ratio = parse_number<double>(ratio),
                                 .label = ratio.empty() ? shown : fmt::format("{}, ratio {}", shown, ratio),
                                 .spec = spec});
    return found->second;
  }

  void check_versions() {
    for (const Json* json : {&plan_, &document_.summary}) {
      const auto schema = number_at(*json, "schema");
      if (!schema || *schema == 1) continue;
      document_.notices.push_back(fmt::format(
          "the study has files of schema {}; this version knows 1, and reads what it understands", *schema));
      break;
    }
    const std::string version = text_at(at_or_null(plan_, "environment"), "sparsewire");
    if (!version.empty() && version != SPARSEWIRE_VERSION) {
      document_.notices.push_back(fmt::format("the study was made by sparsewire {}", version));
    }
  }

  void read_runs() {
    std::map<std::string, std::vector<Place>> shared;
    for (Place& place : places_of(folder_ + "/runs.csv")) shared[place.id].push_back(std::move(place));
    std::vector<std::string> ids;
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_ + "/runs", error)) {
      const std::string id = entry.path().filename().string();
      if (id.starts_with(".unfinished-")) ++unfinished_;
      if (!id.starts_with('.')) ids.push_back(id);
    }
    std::sort(ids.begin(), ids.end());
    std::vector<std::string> damaged;
    for (const std::string& id : ids) {
      try {
        read_run(id, shared[id]);
      } catch (const std::exception& one) {
        damaged.push_back(fmt::format("the run '{}' was left out: {}", id, one.what()));
      }
    }
    for (std::size_t i = 0; i < std::min(damaged.size(), kMostNamedRuns); ++i) document_.notices.push_back(damaged[i]);
    if (damaged.size() > kMostNamedRuns) {
      document_.notices.push_back(fmt::format("{} more runs were left out", damaged.size() - kMostNamedRuns));
    }
  }

  void read_run(const std::string& id, const std::vector<Place>& places) {
    const std::string folder = folder_ + "/runs/" + id;
    const Json result = read_json(folder + "/result.json");
    ReportedRun run;
    run.id = id;
    run.phase = text_at(result, "phase");
    run.seed = count_at(result, "seed");
    run.lr = number_at(result, "lr");
    run.is_chosen = run.phase == study::kJudge;
    const std::string status = text_at(result, "status");
    run.status = status == study::kFinished ? kFinished : kDiverged;
    run.diverged_at = count_at(result, "diverged_at");
    run.seconds = number_at(result, "seconds");
    run.result = result_of(result);
    try {
      run.config = shown_config(read_json(folder + "/config.json"));
    } catch (const UsageError& error) {
      document_.notices.emplace_back(error.what());
    }
    read_series(folder + "/metrics.jsonl", result, run);
    std::vector<Place> all = places;
    if (all.empty()) all.push_back({id, text_at(result, "method"), text_at(result, "ratio")});
    for (std::size_t i = 0; i < all.size(); ++i) {
      ReportedRun one = run;
      if (i > 0) one.id += fmt::format("-{}", i + 1);
      one.method = method_of(all[i].method, all[i].ratio, "");
      document_.runs.push_back(std::move(one));
    }
  }

  // Only judging runs have series: the others would make the page several times as large.
  void read_series(const std::string& path, const Json& result, ReportedRun& run) {
    if (!fs::is_regular_file(path)) {
      document_.notices.push_back(fmt::format("'{}' is no file", path));
      return;
    }
    if (!run.is_chosen) {
      run.lines = count_lines(path);
      return;
    }
    Metrics metrics = read_metrics(path, run.id, kMostLinesOfARun);
    run.lines = metrics.lines;
    add_notices("run " + run.id, metrics.notices, document_);
    run.series = std::move(metrics.series);
    add_start(at_or_null(result, "start"), run.series);
    const std::optional<double> end = number_at(result, "final_train_loss");
    if (end && !run.series.rows().empty()) set_unless_there("train_loss", *end, run.series.rows().back(), run.series);
  }

  static void set_unless_there(const std::string& name, double number, Row& row, Series& series) {
    const std::size_t column = series.column(name);
    if (column == Series::kNoColumn) return;
    if (row.values.size() <= column) row.values.resize(column + 1, missing());
    if (is_missing(row.values[column])) row.values[column] = number;
  }

  // The evaluation before the first step, which is not in the metrics.
  static void add_start(const Json& start, Series& series) {
    if (!start.is_object()) return;
    Row row{.line = 0, .is_evaluation = true, .values = {}};
    const auto set = [&](const std::string& name, double number) { set_unless_there(name, number, row, series); };
    set("step", 0);
    for (const auto& [name, value] : start.items()) {
      if (value.is_number()) set(name, value.get<double>());
    }
    for (const char* name : {"total_bytes_up", "total_bytes_down", "total_bytes_served", "paper_bits_up",
                             "paper_bits_down", "total_error", "seconds"}) {
      if (series.find(name) != Series::kNoColumn) set(name, 0);
    }
    series.rows().insert(series.rows().begin(), std::move(row));
  }

  // As the columns of runs.csv are named.
  static Json result_of(const Json& result) {
    Json shown = Json::object();
    for (const char* key : {"k", "steps", "initial_train_loss", "val_loss", "test_loss", "metric", "val_metric",
                            "metric_name", "weights_crc32c", "lambda", "downlink_lambda", "grown", "status"}) {
      const Json value = at_or_null(result, key);
      if (value.is_number() || value.is_string() || (value.is_null() && result.contains(key))) shown[key] = value;
    }
    shown["train_loss"] = at_or_null(result, "final_train_loss");
    const Json totals = at_or_null(result, "totals");
    if (totals.is_object()) {
      for (const auto& [key, value] : totals.items()) {
        if (value.is_number() || value.is_null()) shown[key] = value;
      }
    }
    std::string own;
    const Json given = at_or_null(result, "own");
    if (given.is_object()) {
      for (const auto& [key, value] : given.items()) {
        own += fmt::format("{}{}={}", own.empty() ? "" : " ", key,
                           value.is_string() ? value.get<std::string>() : train::shown(value));
      }
    }
    if (!own.empty()) shown["own"] = own;
    return shown;
  }

  // In the order of the plan: pilots, probes, tuning, judging; each by method, learning rate and seed.
  void sort_runs() {
    const auto rank = [](const ReportedRun& run) {
      const std::vector<std::string> phases = {study::kPilot, study::kProbe, study::kTune, study::kJudge};
      const auto phase = std::find(phases.begin(), phases.end(), run.phase) - phases.begin();
      return std::tuple(phase, run.method, run.lr.value_or(0), run.seed.value_or(0));
    };
    std::stable_sort(document_.runs.begin(), document_.runs.end(),
                     [&](const ReportedRun& a, const ReportedRun& b) { return rank(a) < rank(b); });
  }

  void note_what_is_missing() {
    std::map<std::string, std::size_t> done;
    for (const ReportedRun& run : document_.runs) ++done[run.phase];
    std::string text = "the study is not finished:";
    for (const char* phase : {study::kPilot, study::kProbe, study::kTune, study::kJudge}) {
      if (done[phase] > 0) text += fmt::format(" {},", counted(done[phase], phase + std::string(" run")));
    }
    if (document_.runs.empty()) text += " no run,";
    text.back() = ' ';
    text += document_.runs.size() == 1 ? "is done" : "are done";
    if (unfinished_ > 0) text += fmt::format(", {} under way or broken off", unfinished_);
    document_.notices.push_back(text + "; the same command continues it");
  }

  const std::string& folder_;
  Document document_;
  Json plan_;
  std::map<std::pair<std::string, std::string>, std::size_t> methods_;  // by spec and ratio
  std::size_t unfinished_ = 0;
};

}  // namespace

bool is_study(const std::string& folder) {
  std::error_code error;  // a folder that may not be read is none
  return fs::is_regular_file(folder + "/plan.json", error);
}

Document collect_study(const std::string& folder) { return StudyCollector(folder).run(); }

}  // namespace sparsewire::report
