// Makes the data of a report from what a user names: the folder of a study or of a comparison, metrics files, reports
// of `train --json`, the report of `reproduce --json`. Each kind has a file collect_*.cc. All are tolerant: what is
// missing or damaged becomes a notice.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/document.h"
#include "report/metrics_reader.h"

namespace sparsewire::report {

struct CollectOptions {
  std::optional<std::string> title = {};
  // The inputs may still be written: what is not there yet is a notice and not an error, and runs that are not known to
  // be finished are running.
  bool is_live = false;
};

// Throws UsageError if inputs cannot be combined, and unless `is_live` also if one is not there, cannot be read, or has
// nothing that can be shown.
Document collect(const std::vector<std::string>& inputs, const CollectOptions& options = {});

// The parts of collect().
bool is_study(const std::string& folder);
bool is_comparison(const std::string& folder);
Document collect_study(const std::string& folder);
Document collect_comparison(const std::string& folder, bool is_live);
Document collect_metrics(const std::vector<std::string>& paths, bool is_live);
// Of one training that this program ran. `report` is that of `train --json`; of one that was stopped or diverged it has
// `config` only.
Document collect_training(const Json& report, Metrics metrics, const std::string& status,
                          std::optional<std::uint64_t> diverged_at);
// Of the JSON of `reproduce`, with "table".
Document collect_reproduction(const Json& json);

// A run of which there are metrics and perhaps a configuration, and what its status is.
ReportedRun run_of(Metrics metrics, bool is_live);
// Adds the notices of a file, with its name.
void add_notices(const std::string& name, const std::vector<std::string>& notices, Document& document);
// Without what is empty, or says where things were written.
Json shown_config(const Json& config);
// "logreg on a9a: 123 weights, 20 workers, 1000 steps". `config` is that of a run, or what all have in common.
std::string problem_text(const Json& config, const std::string& data, std::optional<std::uint64_t> weights);

// A file of at most 64 MiB. Throws UsageError.
Json read_json(const std::string& path);
// What `train --json` or `reproduce --json` wrote; nothing if the file is none of JSON as a whole. Throws UsageError if
// it is, and of something else.
std::optional<Json> read_report(const std::string& path);
bool is_reproduction(const Json& json);

}  // namespace sparsewire::report
