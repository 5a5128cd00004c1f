// The folder of a comparison (docs/guides/training.md, compare), finished or not.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "report/collect.h"
#include "sparsewire/errors.h"
#include "text/number.h"

namespace sparsewire::report {
namespace {

namespace fs = std::filesystem;

// "diverged in step 12: ..."
std::optional<std::uint64_t> step_of_failure(const std::string& failure) {
  constexpr std::string_view kBegin = "diverged in step ";
  if (!failure.starts_with(kBegin)) return std::nullopt;
  const std::string_view rest = std::string_view(failure).substr(kBegin.size());
  return parse_number<std::uint64_t>(rest.substr(0, rest.find(':')));
}

std::string string_at(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

bool has_ratio(const Json& row) {
  return string_at(row, "sparsifier").find("ratio=") != std::string::npos ||
         string_at(row, "downlink").find("ratio=") != std::string::npos;
}

// Names of files in the folder that no method of the summary has: of a method that still runs.
std::vector<std::string> others_of(const std::string& folder, const std::vector<std::string>& known) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(".jsonl") || !entry.is_regular_file()) continue;
    if (std::find(known.begin(), known.end(), name) == known.end()) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

double local_steps_of(const Json& json) {
  const auto found = json.find("local_steps");
  return found != json.end() && found->is_number() ? std::clamp(found->get<double>(), 1.0, 1e6) : 1;
}

// Of a method with other local steps: steps of the optimiser, as the others have them, and not exchanges.
void scale_steps(double factor, ReportedRun& run) {
  const std::size_t step = run.series.find("step");
  for (Row& row : run.series.rows()) {
    if (step < row.values.size()) row.values[step] *= factor;
  }
  if (run.diverged_at) {
    constexpr double kMost = 1e18;  // of a damaged file
    run.diverged_at = static_cast<std::uint64_t>(std::min(kMost, static_cast<double>(*run.diverged_at) * factor));
  }
}

// `common`: the settings of all methods.
ReportedRun read_row(const std::string& folder, const Json& common, const Json& row, bool is_live, Document& document) {
  const std::string file = string_at(row, "metrics");
  const bool is_plain = !file.empty() && file.find('/') == std::string::npos;
  ReportedRun run;
  if (is_plain && fs::is_regular_file(folder + "/" + file)) {
    Metrics metrics = read_metrics(folder + "/" + file, file, kMostLinesOfARun);
    add_notices(file, metrics.notices, document);
    run = run_of(std::move(metrics), is_live);
  } else {
    document.notices.push_back(fmt::format("'{}/{}' is no file", folder, file));
  }
  const std::string failure = string_at(row, "failure");
  run.status = failure.empty() ? kFinished : kDiverged;
  run.diverged_at = step_of_failure(failure);
  scale_steps(local_steps_of(row) / local_steps_of(common), run);
  if (row.contains("seconds") && row.at("seconds").is_number()) run.seconds = row.at("seconds").get<double>();
  run.result = Json::object();
  for (const auto& [key, value] : row.items()) {
    const bool is_config = key == "sparsifier" || key == "exchange" || key == "downlink" || key == "feedback";
    if (is_config) run.config[key] = value;
    const bool is_result = !is_config && key != "method" && key != "metrics" && key != "seconds";
    if (is_result && (value.is_number() || value.is_string() || value.is_null())) run.result[key] = value;
  }
  return run;
}

}  // namespace

bool is_comparison(const std::string& folder) {
  const std::string path = folder + "/summary.json";
  if (!fs::is_regular_file(path)) return false;
  try {
    const Json json = read_json(path);
    return json.is_object() && json.contains("ratio") && json.contains("methods");
  } catch (const UsageError&) {
    return false;
  }
}

Document collect_comparison(const std::string& folder, bool is_live) {
  const Json summary = read_json(folder + "/summary.json");
  const Json common = summary.value("config", Json::object());
  Document document;
  document.kind = "compare";
  document.is_finished = summary.contains("finished") && summary.at("finished") == true;
  std::vector<std::string> files;
  const auto add = [&](ReportedRun run, const std::string& name, std::optional<double> ratio,
                       std::optional<std::string> spec) {
    run.method = document.methods.size();
    document.methods.push_back({.name = name, .ratio = ratio, .label = name, .spec = std::move(spec)});
    run.id = name;
    if (common.contains("seed") && common.at("seed").is_number_unsigned()) {
      run.seed = common.at("seed").get<std::uint64_t>();
    }
    if (common.contains("lr") && common.at("lr").is_number()) run.lr = common.at("lr").get<double>();
    Json config = shown_config(common);
    for (const auto& [key, value] : run.config.items()) config[key] = value;
    run.config = std::move(config);
    document.runs.push_back(std::move(run));
  };
  for (const Json& row : summary.at("methods")) {
    if (!row.is_object()) continue;
    files.push_back(string_at(row, "metrics"));
    std::optional<double> ratio;
    if (has_ratio(row) && summary.at("ratio").is_number()) ratio = summary.at("ratio").get<double>();
    std::string spec = string_at(row, "sparsifier");
    const std::string downlink = string_at(row, "downlink");
    if (!downlink.empty()) spec += " | downlink=" + downlink;
    add(read_row(folder, common, row, is_live, document), string_at(row, "method"), ratio, spec);
  }
  std::vector<std::string> others;
  if (!document.is_finished) others = others_of(folder, files);
  for (const std::string& name : others) {
    Metrics metrics = read_metrics(folder + "/" + name, name, kMostLinesOfARun);
    if (metrics.series.rows().empty()) continue;
    add_notices(name, metrics.notices, document);
    add(run_of(std::move(metrics), is_live), name.substr(0, name.size() - std::string_view(".jsonl").size()), {}, {});
  }
  std::optional<std::uint64_t> weights;
  for (const ReportedRun& run : document.runs) {
    if (!weights) weights = weights_of(run.series);
  }
  const std::string data = fs::path(string_at(common, "data")).filename().string();
  document.problem = problem_text(common, data, weights);
  document.title = "Comparison: " + string_at(common, "problem") + (data.empty() ? "" : " on " + data);
  return document;
}

}  // namespace sparsewire::report
