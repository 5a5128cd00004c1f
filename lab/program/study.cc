// sparsewire study: methods compared with tuned settings, several seeds and intervals.
#include "study/study.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "commands.h"
#include "lists.h"
#include "loop/run_or_fail.h"
#include "loop/stop.h"
#include "message.h"
#include "options.h"
#include "problems/problem.h"
#include "settings.h"
#include "sparsewire/errors.h"
#include "sparsewire/spec.h"
#include "study/estimate.h"
#include "study_run.h"
#include "terminal.h"
#include "text/list.h"
#include "written_report.h"

namespace sparsewire::cli {
namespace {

struct StudyCommand {
  GivenSettings given;
  std::vector<std::string> methods;
  std::string ratios = "0.01";
  std::optional<std::vector<double>> lrs;
  std::optional<std::uint64_t> seeds;
  std::optional<std::uint64_t> tune_seeds;
  std::optional<std::uint64_t> eval_every;
  std::optional<std::uint64_t> jobs;
  std::optional<std::uint64_t> budget_bytes;
  std::optional<std::uint64_t> tune_steps;
  std::optional<std::string> baseline;
  std::optional<std::string> primary;
  std::optional<std::string> tuned_by;
  std::optional<double> target;
  std::optional<double> max_hours;
  bool grow = false;
  bool dry_run = false;
  std::optional<std::string> init_weights;
  std::string out = "study-out";
};

constexpr std::uint64_t kEvaluations = 100;  // of a run
constexpr std::uint64_t kNotGiven = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t kMost = std::uint64_t{1} << 50;

train::TrainConfig study_defaults() {
  train::TrainConfig config;
  config.workers = 8;
  config.steps = 500;
  config.validation = 0.1;
  return config;
}

std::vector<std::string> default_methods() {
  return {"dense", "topk", "rtopk", "threshold", "regtopk", "topk | downlink=topk name=both_ways"};
}

// Plain names may also have commas between them, as `compare` takes them.
std::vector<std::string> methods_of(const std::vector<std::string>& given) {
  std::vector<std::string> methods;
  for (const std::string& text : given) {
    const bool is_spec = text.find_first_of(":|") != std::string::npos;
    for (const std::string& one : is_spec ? std::vector<std::string>{text} : split_list(text, ','))
      methods.push_back(one);
  }
  return methods;
}

bool has_samples(const std::string& problem) {
  const std::string name = Spec(problem).name();
  const auto infos = train::problems();
  const auto found = std::find_if(infos.begin(), infos.end(), [&](const auto& info) { return info.name == name; });
  return found == infos.end() || found->has_samples;
}

study::Request request_of(const StudyCommand& command) {
  study::Request request;
  request.config = study_defaults();
  request.config.validation = -1;  // not given
  request.config.eval_every = kNotGiven;
  command.given.apply(request.config);
  train::TrainConfig& config = request.config;
  if (config.validation < 0) config.validation = has_samples(config.problem) ? study_defaults().validation : 0;
  if (config.workers == 0) config.workers = study_defaults().workers;
  if (config.steps == 0) throw UsageError("--steps 0: a study needs at least one step");
  if (config.eval_every == kNotGiven) config.eval_every = std::max<std::uint64_t>(1, config.steps / kEvaluations);
  if (command.eval_every) config.eval_every = *command.eval_every;
  clear_outputs(config);
  if (command.init_weights) config.init_weights = *command.init_weights;
  request.methods = command.methods.empty() ? default_methods() : methods_of(command.methods);
  request.ratios = split_list(command.ratios, ',');
  request.lrs = command.lrs.value_or(std::vector<double>{config.lr});
  request.seeds = command.seeds.value_or(request.seeds);
  request.tune_seeds = command.tune_seeds.value_or(request.tune_seeds);
  request.baseline = command.baseline;
  request.primary = command.primary;
  request.tuned_by = command.tuned_by;
  request.target = command.target;
  request.budget_bytes = command.budget_bytes;
  request.tune_steps = command.tune_steps;
  request.grow = command.grow;
  return request;
}

bool has_any_result(const study::Results& results) {
  return std::any_of(results.records.begin(), results.records.end(), [](const study::Record& record) {
    return record.phase == study::kJudge && record.status == study::kFinished;
  });
}

void study_command(const StudyCommand& command) {
  ignore_broken_outputs();
  check_alone("a study runs its workers as threads, so start it without mpirun");
  study::Request request = request_of(command);
  const auto path_or_none = [](const std::string& path) { return path.empty() ? std::nullopt : std::optional(path); };
  const std::optional<std::string> json_path = path_or_none(request.config.json);
  check_distinct({{"--config", command.given.config_file},
                  {"--data", path_or_none(request.config.data)},
                  {"--test-data", path_or_none(request.config.test_data)},
                  {"--init-weights", path_or_none(request.config.init_weights)},
                  {"--json", json_path}});
  const auto whole = [](const std::filesystem::path& path) { return std::filesystem::weakly_canonical(path); };
  if (json_path && whole(*json_path).parent_path() == whole(command.out)) {
    throw UsageError(fmt::format("--json '{}' is in the folder of the study, which has its own files", *json_path));
  }
  check_place(json_path);
  request.config.json.clear();  // of the study, not of its runs
  study::Plan plan;
  {
    const auto problem = train::make_problem(request.config.problem, train::problem_place(request.config));
    plan = study::make_plan(request, *problem);
  }
  for (const std::string& note : plan.notes) complain("note: " + note);
  study::StudyOptions options{.folder = command.out};
  options.jobs = static_cast<unsigned>(command.jobs.value_or(default_jobs(request.config.device)));
  options.max_hours = command.max_hours;
  options.stop_requested = train::stop_requested;
  if (command.dry_run) {
    study::check_folder(command.out, plan);
    const study::Estimate all = estimate_with_status(plan, options, request.config.quiet);
    Report report(json_path, estimate_json(all, options.jobs), estimate_text(plan, all, options.jobs));
    report.print();
    report.commit();
    return;
  }
  const StudyRun run = run_in_folder(plan, options, request.config.quiet);
  const study::Results& results = *run.results;
  std::string text = study::summary_text(results);
  text +=
      wrapped(fmt::format("\nFiles in {}/: summary.md and summary.tex (these tables), references.bib, summary.json, "
                          "runs.csv, timings.csv\n",
                          printable(command.out)));
  if (!run.page.empty()) text += report_line(run.page);
  Report report(json_path, study::summary_json(results), text);
  report.print();
  report.commit();
  if (!has_any_result(results)) throw std::runtime_error("every method diverged: try smaller learning rates (--lr)");
}

}  // namespace

void add_study(CLI::App& program) {
  CLI::App* const app =
      program.add_subcommand("study", "Compare methods with tuned settings, several seeds and intervals");
  app->footer(
      "A method is a sparsifier, and behind a bar what else differs: downlink, codec,\n"
      "feedback, exchange, schedule, optimiser, clip, scope, average, lr, and a name\n"
      "for the tables.\n"
      "The ratio is put in where a spec takes one. mu=1/4 tries two values, each with\n"
      "every learning rate.\n"
      "Settings are chosen on the tuning seeds, by the validation loss, and judged on\n"
      "the other seeds and the test data. All runs of a seed have the same data, start\n"
      "and batches. Ctrl-C keeps what is done; the same command continues.\n"
      "Examples:\n"
      "  sparsewire study --methods dense topk regtopk:mu=4 --lr 0.03,0.1,0.3\n"
      "  sparsewire study --problem logreg --data a9a --test-data a9a.t --workers 20 \\\n"
      "    --methods dense topk threshold 'topk | downlink=topk' --ratio 0.02,0.1 \\\n"
      "    --lr 0.03,0.1,0.3,1 --steps 2000 --out study1 --dry-run");
  const auto command = std::make_shared<StudyCommand>();
  add_load(*app);
  app->add_option("--methods", command->methods,
                  "What is compared, in quotes where it has a bar (default: dense, topk, rtopk, threshold, regtopk, "
                  "and topk with a downlink)")
      ->type_name("SPEC");
  const auto add = [&](const char* name, auto& value, const char* type, const char* help) {
    app->add_option(name, value, help)->type_name(type)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  };
  add("--ratio", command->ratios, "X,X,...", "Shares of the entries that are sent (default 0.01)");
  add_numbers(*app, "--lr", command->lrs, {.min = 0, .max = 3e38, .above_min = true},
              "Learning rates to choose from (default 0.1)");
  add_integer(*app, "--tune-seeds", command->tune_seeds, 0, 1000, "Seeds to choose settings on (default 2)");
  add_integer(*app, "--tune-steps", command->tune_steps, 1, kMost,
              "Steps of a run on a tuning seed, where fewer are enough to choose (default: all)");
  add_integer(*app, "--seeds", command->seeds, 1, 1000, "Seeds to judge on (default 5)");
  add("--baseline", command->baseline, "NAME",
      "The method that others are compared with (default dense, or the first)");
  add("--primary", command->primary, "NAME",
      "What methods are judged by: test_loss, val_loss, train_loss or metric (default: the first of these that is "
      "measured)");
  add("--tuned-by", command->tuned_by, "NAME",
      "What settings are chosen by on the tuning seeds: val_loss, or val_metric (the accuracy on the validation data); "
      "without validation data train_loss");
  add_number(*app, "--target", command->target, {.min = -1e300, .max = 1e300},
             "Validation loss to reach (default: the baseline's final one plus 5 % of what it fell by)");
  add_integer(*app, "--budget-bytes", command->budget_bytes, 1, kMost,
              "Bytes of a run, of all workers, up and down: sets its steps, and schedules follow");
  app->add_flag("--grow", command->grow,
                "Try one more beyond it where the best learning rate or parameter is at the edge, twice at most");
  add_integer(*app, "--jobs", command->jobs, 1, 1024,
              "Runs at a time (default: as many as there are cores; with --device cuda 1)");
  add_number(*app, "--max-hours", command->max_hours, {.min = 0, .max = 1e6},
             "Start no run after so many hours; the same command continues");
  app->add_flag("--dry-run", command->dry_run, "Print runs, hours and disk space, and write nothing");
  add("--out", command->out, "DIR", "Folder for everything that is kept (default study-out)");
  add("--init-weights", command->init_weights, "FILE.npy",
      "Every run starts from these weights, as 'train --save-weights' wrote them. A study that is continued refuses "
      "other contents; the file may have another name");
  add_integer(*app, "--eval-every", command->eval_every, 0, kMost,
              "Steps between two evaluations; 0: only at the end (default: a hundredth of the steps)");
  add_config(*app, command->given);
  add_settings(
      *app, study_defaults(),
      {"sparsifier", "downlink", "lr", "eval_every", "init_weights", "save_weights", "metrics", "metrics_every_step",
       "report", "checkpoint_dir", "checkpoint_every", "keep", "resume", "change", "transport"},
      command->given);
  app->callback([command] {
    try {
      study_command(*command);
    } catch (const train::SharedError& error) {
      if (error.is_usage()) throw UsageError(error.what());
      throw;
    }
  });
}

}  // namespace sparsewire::cli
