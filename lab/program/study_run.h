// A study in its folder: runs what is missing, shows progress, writes the files and the page. For `study`, and for the
// reproductions that are studies.
#pragma once

#include <memory>
#include <string>

#include "options.h"
#include "study/estimate.h"
#include "study/study.h"

namespace sparsewire::cli {

struct StudyRun {
  std::unique_ptr<study::Results> results;
  std::string page;  // the file of the report; empty if it could not be written
};

// Throws UsageError if the folder is of something else; std::runtime_error, which says that the same command continues,
// after a signal or --max-hours.
StudyRun run_in_folder(study::Plan& plan, const study::StudyOptions& options, bool is_quiet);

// As many as there are cores; one at a time on a GPU, which cannot do two things at once.
unsigned default_jobs(const std::string& device);

// study::estimate(), which may take a minute: on a terminal it says how far it is.
study::Estimate estimate_with_status(const study::Plan& plan, const study::StudyOptions& options, bool is_quiet);

// What --dry-run prints, and writes with --json.
std::string estimate_text(const study::Plan& plan, const study::Estimate& all, unsigned jobs);
Json estimate_json(const study::Estimate& all, unsigned jobs);

}  // namespace sparsewire::cli
