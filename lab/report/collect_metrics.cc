// Metrics files, each a run; and reports of `train --json`, which also know the configuration and the result.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <utility>

#include "files/input.h"
#include "report/collect.h"
#include "sparsewire/errors.h"
#include "text/counted.h"

namespace sparsewire::report {
namespace {

namespace fs = std::filesystem;

constexpr auto kRecent = std::chrono::seconds(60);  // written to within that time: probably still running

// Of the file name: "run-0.jsonl" as "run-0".
std::string stem_of(const std::string& path) {
  const std::string stem = fs::path(path).stem().string();
  return stem.empty() ? path : stem;
}

// Short where that is enough: the stem, the name, the whole path.
std::vector<std::string> labels_of(const std::vector<std::string>& paths) {
  std::vector<std::string> labels;
  for (const std::string& path : paths) {
    const auto is_shared = [&](const auto& name_of) {
      return std::count_if(paths.begin(), paths.end(), [&](auto& other) { return name_of(other) == name_of(path); }) >
             1;
    };
    const auto file_name = [](const std::string& one) { return fs::path(one).filename().string(); };
    labels.push_back(!is_shared(stem_of) ? stem_of(path) : !is_shared(file_name) ? file_name(path) : path);
  }
  return labels;
}

bool was_written_recently(const std::string& path) {
  std::error_code error;
  const auto written = fs::last_write_time(path, error);
  return !error && fs::file_time_type::clock::now() - written < kRecent;
}

// A report of `train --json`: its metrics are where its configuration says, or beside it.
Metrics metrics_of_report(const std::string& path, const Json& config, Document& document) {
  const std::string name = config.contains("metrics") && config.at("metrics").is_string()
                               ? config.at("metrics").get<std::string>()
                               : std::string();
  if (name.empty()) {
    document.notices.push_back(fmt::format("'{}' is of a training without --metrics: there is nothing to draw", path));
    return {};
  }
  for (const fs::path& place : {fs::path(name), fs::path(path).parent_path() / fs::path(name).filename()}) {
    if (fs::is_regular_file(place)) return read_metrics(place.string(), name, kMostLinesOfARun);
  }
  document.notices.push_back(fmt::format("the metrics of '{}', '{}', are not there", path, name));
  return {};
}

void take_report(const Json& report, const std::string& status, std::optional<std::uint64_t> diverged_at,
                 ReportedRun& run) {
  const Json& config = report.at("config");
  run.config = shown_config(config);
  run.status = status;
  run.diverged_at = diverged_at;
  if (config.contains("seed") && config.at("seed").is_number_unsigned())
    run.seed = config.at("seed").get<std::uint64_t>();
  if (config.contains("lr") && config.at("lr").is_number()) run.lr = config.at("lr").get<double>();
  for (const auto& [key, value] : report.items()) {
    if (key == "seconds" && value.is_number()) run.seconds = value.get<double>();
    if (key != "seconds" && (value.is_number() || value.is_string() || value.is_null())) run.result[key] = value;
  }
}

// A whole number without ".0".
Json json_of(double number) {
  constexpr double kExactly = 9e15;
  if (!std::isfinite(number)) return nullptr;
  if (number == std::trunc(number) && std::abs(number) < kExactly) return static_cast<std::int64_t>(number);
  return number;
}

// The name of its file, without folders.
std::string data_name(const Json& config) {
  const auto data = config.find("data");
  const bool has_data = data != config.end() && data->is_string();
  return has_data ? fs::path(data->get<std::string>()).filename().string() : std::string();
}

bool is_train_report(const Json& json) {
  return json.is_object() && json.contains("config") && json.at("config").is_object() && json.contains("step") &&
         json.contains("weights_crc32c");
}

}  // namespace

// By its beginning: a report is laid out in lines, or one of its first keys is none of metrics.
std::optional<Json> read_report(const std::string& path) {
  constexpr std::uint64_t kBeginning = 4096;
  if (!fs::is_regular_file(path)) return std::nullopt;
  const files::Bytes bytes = files::Input(path).read(kBeginning);
  const std::string_view text = bytes.text();
  const std::size_t open = text.find_first_not_of(" \t\r\n");
  if (open == std::string_view::npos || text[open] != '{') return std::nullopt;
  const std::size_t next = text.find_first_not_of(" \t\r", open + 1);
  const bool is_laid_out = next != std::string_view::npos && text[next] == '\n';
  const std::string_view line = text.substr(open, text.find('\n', open) - open);
  const bool has_key = line.starts_with("{\"name\":") || line.starts_with("{\"config\":");
  if (!is_laid_out && !has_key) return std::nullopt;
  Json json = read_json(path);
  if (is_train_report(json) || is_reproduction(json)) return json;
  throw UsageError(fmt::format(
      "'{}' is a report neither of 'train' nor of 'reproduce'; of a study or a comparison, name the folder", path));
}

bool is_reproduction(const Json& json) {
  return json.is_object() && json.contains("measured") && json.at("measured").is_array() && json.contains("claim");
}

Json read_json(const std::string& path) {
  constexpr std::uint64_t kLargest = 64 << 20;
  if (!fs::is_regular_file(path)) throw UsageError(fmt::format("'{}' is no file", path));
  const files::Bytes bytes = files::Input(path).read(kLargest + 1);
  if (bytes.size > kLargest) throw UsageError(fmt::format("'{}' is larger than 64 MiB", path));
  try {
    return train::parse_json(bytes.text());
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("'{}' is damaged: {}", path, error.what()));
  }
}

void add_notices(const std::string& name, const std::vector<std::string>& notices, Document& document) {
  for (const std::string& notice : notices) document.notices.push_back(fmt::format("{}: {}", name, notice));
}

Json shown_config(const Json& config) {
  constexpr std::string_view kLeftOut[] = {"json",     "metrics", "save_weights",     "checkpoint_dir",
                                           "resume",   "change",  "checkpoint_every", "keep",
                                           "deadline", "quiet",   "report",           "metrics_every_step"};
  Json shown = Json::object();
  if (!config.is_object()) return shown;
  for (const auto& [key, value] : config.items()) {
    const bool is_left_out = std::find(std::begin(kLeftOut), std::end(kLeftOut), key) != std::end(kLeftOut);
    if (is_left_out || value == "" || value.is_structured()) continue;
    shown[key] = value;
  }
  return shown;
}

std::string problem_text(const Json& config, const std::string& data, std::optional<std::uint64_t> weights) {
  const auto number = [&](const char* key) {
    const auto found = config.find(key);
    return config.is_object() && found != config.end() && found->is_number_unsigned() ? found->get<std::uint64_t>() : 0;
  };
  std::string text = config.is_object() && config.contains("problem") && config.at("problem").is_string()
                         ? config.at("problem").get<std::string>()
                         : std::string("a problem");
  if (!data.empty()) text += " on " + data;
  std::string parts;
  const auto add = [&](std::uint64_t count, const char* one) {
    if (count == 0) return;
    parts += (parts.empty() ? ": " : ", ") + counted(count, one);
  };
  add(weights.value_or(0), "weight");
  add(number("workers"), "worker");
  add(number("steps"), "step");
  return text + parts;
}

ReportedRun run_of(Metrics metrics, bool is_live) {
  ReportedRun run;
  run.lines = metrics.lines;
  const auto step = metrics.last("step");
  const bool is_done = metrics.steps && step && *step >= *metrics.steps;
  run.diverged_at = metrics.diverged_at();
  run.status = run.diverged_at             ? kDiverged
               : is_done                   ? kFinished
               : is_live                   ? kRunning
               : metrics.steps.has_value() ? kInterrupted
                                           : kFinished;
  run.seconds = metrics.last("seconds");
  run.lr = metrics.last("lr");
  run.series = std::move(metrics.series);
  // The last of every number that an evaluation has.
  for (const std::string& name : run.series.names()) {
    const bool is_result = is_loss(name) || name.ends_with("_accuracy") || name.starts_with("total_") ||
                           name.starts_with("paper_bits_") || name.starts_with("rank_bytes_") ||
                           name == "server_error" || name == "factor_against_dense";
    if (!is_result) continue;
    for (auto row = run.series.rows().rbegin(); row != run.series.rows().rend(); ++row) {
      const double number = run.series.at(*row, run.series.find(name));
      if (is_missing(number)) continue;
      run.result[name] = json_of(number);
      break;
    }
  }
  if (step) run.result["step"] = json_of(*step);
  return run;
}

Document collect_metrics(const std::vector<std::string>& paths, bool is_live) {
  Document document;
  const std::vector<std::string> labels = labels_of(paths);
  std::optional<std::uint64_t> weights;
  Json config;  // of the first that has one
  bool are_done = !paths.empty();
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const std::string& path = paths[i];
    if (is_live && !fs::exists(path)) {
      document.notices.push_back(fmt::format("'{}' is not there yet", path));
      are_done = false;
      continue;
    }
    std::optional<std::string> spec;
    ReportedRun run;
    const std::optional<Json> report = read_report(path);
    if (report) {
      run = run_of(metrics_of_report(path, report->at("config"), document), /*is_live=*/false);
      take_report(*report, kFinished, std::nullopt, run);
      if (config.is_null()) config = report->at("config");
      if (run.config.contains("sparsifier") && run.config.at("sparsifier").is_string()) {
        spec = run.config.at("sparsifier").get<std::string>();
      }
    } else {
      Metrics metrics = read_metrics(path, labels[i], kMostLinesOfARun);
      add_notices(fs::path(path).filename().string(), metrics.notices, document);
      if (metrics.series.rows().empty() && !is_live) {
        throw UsageError(fmt::format("'{}' has no line of metrics{}", path,
                                     metrics.notices.empty() ? "" : ": " + metrics.notices.front()));
      }
      if (metrics.series.rows().empty()) {
        document.notices.push_back(fmt::format("'{}' has no line of metrics yet", path));
      }
      run = run_of(std::move(metrics), is_live);
      if (run.status == kInterrupted && was_written_recently(path)) run.status = kRunning;
    }
    are_done = are_done && (run.status == kFinished || run.status == kDiverged);
    if (!weights) weights = weights_of(run.series);
    run.id = labels[i];
    run.method = document.methods.size();
    document.methods.push_back({.name = labels[i], .ratio = {}, .label = labels[i], .spec = spec});
    document.runs.push_back(std::move(run));
  }
  document.is_finished = are_done;
  constexpr std::size_t kMostNamed = 3;
  for (std::size_t i = 0; i < std::min(labels.size(), kMostNamed); ++i) {
    document.title += (i == 0 ? "Training: " : ", ") + labels[i];
  }
  if (labels.size() > kMostNamed) document.title += fmt::format(" and {} more", labels.size() - kMostNamed);
  if (config.is_object()) {
    document.problem = problem_text(config, data_name(config), weights);
  } else if (weights) {
    document.problem = fmt::format("{} weights", *weights);
  }
  return document;
}

Document collect_training(const Json& report, Metrics metrics, const std::string& status,
                          std::optional<std::uint64_t> diverged_at) {
  Document document;
  add_notices(metrics.name, metrics.notices, document);
  const std::optional<std::uint64_t> weights = weights_of(metrics.series);
  ReportedRun run = run_of(std::move(metrics), /*is_live=*/false);
  take_report(report, status, diverged_at, run);
  const Json& config = report.at("config");
  std::string spec = config.at("sparsifier").get<std::string>();
  if (config.at("downlink") != "") spec += " | downlink=" + config.at("downlink").get<std::string>();
  run.id = spec;
  document.methods.push_back({.name = spec, .ratio = {}, .label = spec, .spec = spec});
  document.runs.push_back(std::move(run));
  document.problem = problem_text(config, data_name(config), weights);
  document.title = "Training: " + config.at("problem").get<std::string>();
  if (!data_name(config).empty()) document.title += " on " + data_name(config);
  document.is_finished = true;
  thin(document);
  return document;
}

}  // namespace sparsewire::report
