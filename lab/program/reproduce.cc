// sparsewire reproduce: runs a published experiment again, and says whether its claim holds here.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <memory>
#include <ratio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "commands.h"
#include "lists.h"
#include "loop/run_or_fail.h"
#include "loop/stop.h"
#include "message.h"
#include "options.h"
#include "report/collect.h"
#include "report/page.h"
#include "reproduce/reproduction.h"
#include "sparsewire/errors.h"
#include "study/estimate.h"
#include "study_run.h"
#include "terminal.h"
#include "text/list.h"
#include "written_report.h"

namespace sparsewire::cli {
namespace {

using reproduce::Measured;
using reproduce::Reproduction;
using reproduce::Result;
using reproduce::Size;

constexpr std::uint64_t kMostRounds = 1'000'000;
constexpr std::uint64_t kMostSeeds = 1000;

struct Command {
  std::string name;
  bool list = false;
  bool quick = false;
  bool full = false;
  std::optional<std::string> json;
  std::optional<std::string> page;
  std::optional<std::string> only;
  std::optional<std::string> out;
  std::optional<std::uint64_t> jobs;
  std::optional<double> max_hours;
  bool dry_run = false;
  Json estimates = Json::array();  // of the parts, of a dry run
  bool quiet = false;
  reproduce::Options options;
};

template <class T>
void put(Json& json, const char* key, const std::optional<T>& value) {
  if (value) json[key] = *value;
}

Json json_of(const Measured& one) {
  Json json{{"method", one.method}};
  put(json, "part", one.part);
  put(json, "form", one.form);
  put(json, "problem", one.problem);
  put(json, "codec", one.codec);
  put(json, "stage", one.stage);
  put(json, "workers", one.workers);
  put(json, "dim", one.dim);
  put(json, "ratio", one.ratio);
  put(json, "k", one.k);
  put(json, "s", one.s);
  put(json, "mu", one.mu);
  put(json, "lambda", one.lambda);
  put(json, "gap", one.gap);
  put(json, "lr", one.lr);
  put(json, "schedule", one.schedule);
  put(json, "every", one.every);
  put(json, "seed", one.seed);
  put(json, "step", one.step);
  json["metric"] = one.metric;
  json["value"] = one.value ? Json(*one.value) : Json(nullptr);
  return json;
}

Json json_of(const Reproduction& reproduction, const Result& result) {
  Json measured = Json::array();
  for (const Measured& one : result.measured) measured.push_back(json_of(one));
  return {{"name", reproduction.name},
          {"paper", reproduction.paper},
          {"claim", reproduction.claim},
          {"verdict", name_of(result.verdict)},
          {"holds", result.verdict == reproduce::Verdict::holds},
          {"reason", result.reason},
          {"conditions", result.conditions},
          {"table", result.table},
          {"measured", measured}};
}

std::string text_of(const Reproduction& reproduction, const Result& result) {
  std::string text = fmt::format("{} ({})\nclaim: {}\n\n{}\n{}: {}\n", reproduction.name, reproduction.paper,
                                 reproduction.claim, result.table, name_of(result.verdict), result.reason);
  for (const std::string& condition : result.conditions) text += fmt::format("- {}\n", condition);
  return wrapped(text);
}

std::vector<std::string> options_of(const Reproduction& reproduction) {
  std::vector<std::string> names;
  for (const std::string& name : split_list(reproduction.options, ' ')) names.push_back("--" + name);
  return names;
}

std::string joined(const std::vector<std::string>& names) {
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
  return all;
}

// Throws UsageError for the first option that was given and that the experiment does not take.
void check_options(const Reproduction& reproduction, const Command& command) {
  const reproduce::Options& given = command.options;
  const auto refuse_unless_taken = [&](const char* option, bool is_given) {
    if (!is_given || reproduction.takes(option)) return;
    throw UsageError(
        fmt::format("{} takes no --{}; it takes {}", reproduction.name, option, joined(options_of(reproduction))));
  };
  refuse_unless_taken("at", given.at.has_value());
  refuse_unless_taken("ratio", given.ratio.has_value());
  refuse_unless_taken("mu", given.mu.has_value());
  refuse_unless_taken("rounds", given.rounds.has_value());
  refuse_unless_taken("seed", given.seed.has_value());
  refuse_unless_taken("seeds", given.seeds.has_value());
  refuse_unless_taken("gap", given.gap.has_value());
  refuse_unless_taken("data", given.data.has_value());
  refuse_unless_taken("workers", given.workers.has_value());
  refuse_unless_taken("device", given.device.has_value());
  refuse_unless_taken("data-dir", given.data_dir.has_value());
  refuse_unless_taken("only", command.only.has_value());
  refuse_unless_taken("out", command.out.has_value());
  refuse_unless_taken("jobs", command.jobs.has_value());
  refuse_unless_taken("max-hours", command.max_hours.has_value());
  refuse_unless_taken("dry-run", command.dry_run);
  refuse_unless_taken("quiet", command.quiet);
}

// On a terminal, a line on standard error that is overwritten.
class ProgressLine {
 public:
  explicit ProgressLine(std::string_view name) : name_(name), shown_(isatty(STDERR_FILENO) == 1) {}
  ~ProgressLine() {
    if (shown_) std::fprintf(stderr, "\r\033[K");
  }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void show(std::size_t done, std::size_t of) const {
    if (shown_) std::fprintf(stderr, "\r%s: %zu %%\033[K", name_.c_str(), of == 0 ? 100 : 100 * done / of);
  }

 private:
  std::string name_;
  bool shown_;
};

void print(const std::optional<std::string>& json_path, const Json& json, std::string text) {
  Report report(json_path, json, std::move(text));
  report.print();
  report.commit();
}

void list(const Command& command) {
  std::string text;
  Json rows = Json::array();
  for (const Reproduction& one : reproduce::reproductions()) {
    const std::vector<std::string> options = options_of(one);
    text +=
        fmt::format("{}{} ({})\n  {}\n{}  options: {}\n", text.empty() ? "" : "\n", one.name, one.paper, one.claim,
                    one.takes("data-dir") ? "  needs a build with libtorch, and a data set\n" : "", joined(options));
    rows.push_back({{"name", one.name}, {"paper", one.paper}, {"claim", one.claim}, {"options", options}});
  }
  print(command.json, {{"reproductions", rows}}, wrapped(text + "\nAll take --quick, --full, --json and --report.\n"));
}

std::string all_names() {
  std::vector<std::string> names;
  for (const Reproduction& one : reproduce::reproductions()) names.emplace_back(one.name);
  return joined(names);
}

// "downlink-fashion", "downlink-fashion-quick"
std::string default_folder(const Command& command) {
  return command.name + (command.quick ? "-quick" : command.full ? "-full" : "");
}

// Prints what a part would take as soon as that is known.
void estimate(Command& command, study::Plan& plan, const study::StudyOptions& options) {
  study::check_folder(options.folder, plan);
  const bool prints_text = command.json != "-";
  if (prints_text) Report({}, {}, printable(options.folder) + "\n").print();
  const study::Estimate all = estimate_with_status(plan, options, command.quiet);
  if (prints_text) Report({}, {}, estimate_text(plan, all, options.jobs)).print();
  Json json = estimate_json(all, options.jobs);
  json["part"] = std::filesystem::path(options.folder).filename().string();
  command.estimates.push_back(std::move(json));
}

// For experiments that are studies.
void set_study_options(Command& command) {
  if (command.options.device && *command.options.device != "cpu" && *command.options.device != "cuda") {
    throw UsageError(fmt::format("--device '{}' is not cpu or cuda", *command.options.device));
  }
  command.options.out = command.out.value_or(default_folder(command));
  if (command.only) command.options.only = split_list(*command.only, ',');
  study::StudyOptions options;
  options.jobs = static_cast<unsigned>(command.jobs.value_or(default_jobs(command.options.device.value_or("cpu"))));
  options.stop_requested = train::stop_requested;
  const auto began = std::chrono::steady_clock::now();
  command.options.run_study = [&command, options, began](study::Plan& plan, const std::string& folder) mutable {
    options.folder = folder;
    if (command.dry_run) {
      estimate(command, plan, options);
      return std::unique_ptr<study::Results>();
    }
    if (!command.quiet) std::fprintf(stderr, "%s\n", printable(folder).c_str());
    if (command.max_hours) {  // for all parts together
      const std::chrono::duration<double, std::ratio<3600>> spent = std::chrono::steady_clock::now() - began;
      options.max_hours = std::max(0.0, *command.max_hours - spent.count());
    }
    return std::move(run_in_folder(plan, options, command.quiet).results);
  };
}

void run(Command& command) {
  if (command.quick && command.full) throw UsageError("--quick and --full cannot be combined");
  if (command.list) {
    if (!command.name.empty()) throw UsageError("--list and a NAME cannot be combined");
    return list(command);
  }
  if (command.name.empty()) throw UsageError("NAME is missing; the experiments are " + all_names());
  const Reproduction& reproduction = reproduce::find_reproduction(command.name);
  check_options(reproduction, command);
  if (reproduction.takes("out")) set_study_options(command);
  check_distinct({{"--data", command.options.data}, {"--json", command.json}, {"--report", command.page}});
  check_place(command.json);
  if (command.page == "-") throw UsageError("--report - is not allowed: name a file");
  if (command.page) report::check_output(*command.page);
  check_place(command.page);
  if (command.quick) command.options.size = Size::quick;
  if (command.full) command.options.size = Size::full;
  Result result;
  {
    const ProgressLine line(reproduction.name);
    result = reproduction.run(command.options, [&](std::size_t done, std::size_t of) { line.show(done, of); });
  }
  if (command.dry_run) {
    Report report(command.json, {{"parts", command.estimates}}, "");
    report.print();
    report.commit();
    return;
  }
  const Json json = json_of(reproduction, result);
  std::string text = text_of(reproduction, result);
  if (command.page && write_report(*command.page, [&] { return report::collect_reproduction(json); })) {
    text += report_line(*command.page);
  }
  print(command.json, json, text);
}

void add_options(CLI::App& app, Command& command) {
  reproduce::Options& options = command.options;
  app.add_option("NAME", command.name, "Name of the experiment; --list shows all")->type_name("");
  app.add_flag("--list", command.list, "List all experiments, with their claims and options");
  app.add_flag("--quick", command.quick,
               "A small version that takes seconds, as the tests run it; with deep networks minutes");
  app.add_flag("--full", command.full, "As large as in the paper");
  add_integers(app, "--at", options.at, 0, kMostRounds, "Steps to show in the table");
  add_numbers(app, "--ratio", options.ratio, {.min = 0, .max = 1, .above_min = true},
              "Shares of the entries that are sent");
  add_number(app, "--mu", options.mu, {.min = 0, .max = 1e30, .above_min = true}, "Parameter mu of RegTop-k");
  add_integer(app, "--rounds", options.rounds, 1, kMostRounds, "Number of training rounds, or of repetitions");
  // So that the last seed does not overflow.
  add_integer(app, "--seed", options.seed, 0, std::numeric_limits<std::uint64_t>::max() - kMostSeeds,
              "First random seed");
  add_integer(app, "--seeds", options.seeds, 1, kMostSeeds, "Number of seeds");
  add_number(app, "--gap", options.gap, {.min = 0, .max = 1, .above_min = true, .below_max = true},
             "Where to stop: the share of the initial gap to the optimal loss, (f - f*)/(f0 - f*)");
  app.add_option("--data", options.data, "LIBSVM file with two labels (default: synthetic data)")->type_name("FILE");
  const auto add = [&](const char* name, auto& value, const char* type, const char* help) {
    app.add_option(name, value, help)->type_name(type)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  };
  add_integer(app, "--workers", options.workers, 1, 1024, "Number of workers (default: as published)");
  add("--device", options.device, "WORD", "Where deep networks compute: cpu, or cuda (a GPU)");
  add("--data-dir", options.data_dir, "DIR", "The folder of the data sets (default: SPARSEWIRE_DATA)");
  add("--only", command.only, "PART,...", "Run these parts only; the tables name them");
  add("--out", command.out, "DIR", "Folder in which each part keeps its runs (default: the name of the experiment)");
  add_integer(app, "--jobs", command.jobs, 1, 1024,
              "Runs at a time (default: as many as there are cores; with --device cuda 1)");
  add_number(app, "--max-hours", command.max_hours, {.min = 0, .max = 1e6},
             "Start no run after so many hours; the same command continues");
  app.add_flag("--dry-run", command.dry_run, "Print runs, hours and disk space of each part, and write nothing");
  app.add_flag("-q,--quiet", command.quiet, "Print no progress");
  add_json(app, command.json);
  app.add_option("--report", command.page, "Also write a page with charts")->type_name("FILE.html");
}

}  // namespace

void add_reproduce(CLI::App& program) {
  CLI::App* const app = program.add_subcommand("reproduce", "Run a published experiment again and check its claim");
  app->footer(
      "Examples:\n"
      "  sparsewire reproduce --list\n"
      "  sparsewire reproduce regtopk-toy --at 0,1,2,10,99\n"
      "  sparsewire reproduce downlink-toy --quick --json downlink.json\n"
      "  sparsewire reproduce downlink-fashion --quick --data-dir data");
  const auto command = std::make_shared<Command>();
  add_options(*app, *command);
  app->callback([command] {
    try {
      run(*command);
    } catch (const train::SharedError& error) {
      if (error.is_usage()) throw UsageError(error.what());
      throw;
    }
  });
}

}  // namespace sparsewire::cli
