#include "report/collect.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "files/input.h"
#include "sparsewire/errors.h"

namespace sparsewire::report {
namespace {

namespace fs = std::filesystem;

// All metrics files of a folder that is neither of a study nor of a comparison, or not yet.
std::vector<std::string> metrics_in(const std::string& folder) {
  std::vector<std::string> paths;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.is_regular_file() && entry.path().extension() == ".jsonl") paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

// What to say of a folder whose sub-folders are studies: that of a reproduction of deep networks has one for each part.
std::string studies_in(const std::string& folder) {
  std::vector<std::string> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.is_directory() && is_study(entry.path().string())) found.push_back(entry.path().string());
  }
  if (found.empty()) return {};
  std::sort(found.begin(), found.end());
  return fmt::format("; there are studies in it: '{}'", fmt::join(found, "', '"));
}

Document collect_folder(const std::string& folder, bool is_live) {
  if (is_study(folder)) return collect_study(folder);
  if (is_comparison(folder)) return collect_comparison(folder, is_live);
  const std::vector<std::string> paths = metrics_in(folder);
  if (paths.empty() && !is_live) {
    throw UsageError(fmt::format(
        "'{}' has nothing to report: neither a study (plan.json), a comparison (summary.json) nor metrics (*.jsonl){}",
        folder, studies_in(folder)));
  }
  Document document = collect_metrics(paths, is_live);
  document.is_finished = document.is_finished && !is_live;  // another file may come
  return document;
}

}  // namespace

Document collect_reproduction(const Json& json) {
  Document document;
  document.kind = "reproduce";
  document.reproduction = json;
  if (!json.contains("table")) document.reproduction["table"] = nullptr;
  const auto name = json.find("name");
  document.title = name != json.end() && name->is_string() ? name->get<std::string>() : "Reproduction";
  document.is_finished = true;
  return document;
}

Document collect(const std::vector<std::string>& inputs, const CollectOptions& options) {
  Document document;
  bool is_done = false;
  for (const std::string& input : inputs) {
    if (!fs::exists(input) && !options.is_live) files::Input{input};  // says why not
    if (fs::is_directory(input)) {
      if (inputs.size() > 1) {
        throw UsageError(fmt::format("'{}' is a folder: a report is of one folder, or of metrics files", input));
      }
      document = collect_folder(input, options.is_live);
      is_done = true;
      break;
    }
    const std::optional<Json> json = read_report(input);
    if (!json || !is_reproduction(*json)) continue;
    if (inputs.size() > 1)
      throw UsageError(fmt::format("'{}' is of a reproduction: it has a report of its own", input));
    document = collect_reproduction(*json);
    is_done = true;
  }
  if (!is_done) document = collect_metrics(inputs, options.is_live);
  if (options.title) document.title = *options.title;
  thin(document);
  return document;
}

}  // namespace sparsewire::report
