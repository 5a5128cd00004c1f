#include "study_run.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

#include "files/folder.h"
#include "files/lock.h"
#include "loop/stop.h"
#include "message.h"
#include "report/collect.h"
#include "study/estimate.h"
#include "study_progress.h"
#include "terminal.h"
#include "text/counted.h"
#include "written_report.h"

namespace sparsewire::cli {
namespace {

// The page is there from the end of the first phase on, and written again at the end of each.
class ReportingProgress final : public StudyProgress {
 public:
  ReportingProgress(const study::Plan& plan, bool is_quiet, const std::string& folder)
      : StudyProgress(plan, is_quiet), folder_(folder) {}

  void on_phase(const std::string& name, const study::Work& left) override {
    StudyProgress::on_phase(name, left);
    if (runs_done() > 0) write();
  }
  void write() {
    if (can_write_) can_write_ = write_report(page(), [&] { return report::collect({folder_}); });
  }
  bool has_page() const { return can_write_; }
  std::string page() const { return folder_ + "/report.html"; }

 private:
  const std::string folder_;
  bool can_write_ = true;  // one warning is enough
};

study::Results run_and_keep(study::Plan& plan, const study::StudyOptions& options, ReportingProgress& progress) {
  try {
    const train::StopSignals signals;
    return study::run_study(plan, options, progress);
  } catch (const study::Stopped& stopped) {
    if (progress.runs_done() > 0) progress.write();
    throw std::runtime_error(fmt::format("{}; {} of {} runs are done and kept in '{}': the same command continues",
                                         stopped.what(), progress.runs_done(), progress.runs(), options.folder));
  }
}

}  // namespace

unsigned default_jobs(const std::string& device) {
  return device == "cpu" ? std::max(1U, std::thread::hardware_concurrency()) : 1;
}

study::Estimate estimate_with_status(const study::Plan& plan, const study::StudyOptions& options, bool is_quiet) {
  StatusLine status(!is_quiet && ::isatty(STDERR_FILENO) == 1);
  study::EstimateOptions how;
  how.on_method = [&](std::size_t number, std::size_t of) {
    status.show(fmt::format("timing {} of {} methods and ratios", number, of));
  };
  study::Estimate all = study::estimate(plan, options, how);
  status.show("");
  return all;
}

std::string estimate_text(const study::Plan& plan, const study::Estimate& all, unsigned jobs) {
  std::string text = fmt::format("{}, {} of settings, {}, {}\n", counted(plan.methods.size(), "method"),
                                 counted(plan.cells.size(), "combination"), counted(plan.dim, "weight"),
                                 counted(plan.config.workers, "worker"));
  const auto add = [&](const char* name, const study::Work& work) {
    if (work.runs > 0)
      text += fmt::format("{:<18} {:>8} runs {:>16} steps\n", name, grouped(work.runs), grouped(work.steps));
  };
  add("pilots", all.pilots);
  add("bytes of a step", all.probes);
  add("tuning", all.tuning);
  add("judging", all.judging);
  text += fmt::format("{:<18} {:>8} runs\n", "all", grouped(all.runs()));
  const std::string steps = all.fewest_steps == all.most_steps
                                ? counted(all.most_steps, "step")
                                : fmt::format("{} to {} steps", all.fewest_steps, all.most_steps);
  text += fmt::format("time: about {}, {} at a time (from {} of each method)\n", duration(all.hours * 3600),
                      counted(jobs, "run"), steps);
  return text + fmt::format("disk: about {}\n", in_units(static_cast<double>(all.disk_bytes)));
}

StudyRun run_in_folder(study::Plan& plan, const study::StudyOptions& options, bool is_quiet) {
  files::make_folder(options.folder);
  const files::FolderLock lock(options.folder);
  study::claim_folder(options.folder, plan);
  ReportingProgress progress(plan, is_quiet, options.folder);
  StudyRun run{.results = std::make_unique<study::Results>(run_and_keep(plan, options, progress)), .page = {}};
  study::write_results(*run.results, options.folder);
  progress.write();
  if (progress.has_page()) run.page = progress.page();
  return run;
}

Json estimate_json(const study::Estimate& all, unsigned jobs) {
  return {{"runs", all.runs()},
          {"pilots", all.pilots.runs},
          {"probes", all.probes.runs},
          {"tuning", all.tuning.runs},
          {"judging", all.judging.runs},
          {"hours", all.hours},
          {"jobs", jobs},
          {"disk_bytes", all.disk_bytes}};
}

}  // namespace sparsewire::cli
