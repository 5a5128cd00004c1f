#include "study/study.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <map>
#include <span>
#include <utility>

#include "files/folder.h"
#include "files/input.h"
#include "files/replace.h"
#include "sparsewire/errors.h"
#include "study/cell_config.h"
#include "text/number.h"

namespace sparsewire::study {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int kMostGrowth = 2;
constexpr double kGrowthOfOne = 3;  // the factor where there is one learning rate, and no distance to its neighbour

void write_text(const std::string& path, const std::string& text) {
  files::Replacement file(path);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

std::string pretty(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n'; }

// What the study is made of, in the order in which it happens.
class Phases {
 public:
  Phases(Plan& plan, const StudyOptions& options, StudyWatcher& watcher)
      : plan_(plan),
        watcher_(watcher),
        scheduler_(plan,
                   {.folder = options.folder,
                    .jobs = options.jobs,
                    .last_start = last_start(options),
                    .stop_requested = options.stop_requested},
                   watcher) {}

  Results run() {
    prepare(0);
    tune(0);
    std::vector<Choice> choices = choose(plan_, tuned_);
    for (int times = 1; plan_.grow && times <= kMostGrowth; ++times) {
      const std::size_t before = plan_.cells.size();
      grow(choices, static_cast<std::uint64_t>(times));
      if (plan_.cells.size() == before) break;
      prepare(before);
      tune(before);
      choices = choose(plan_, tuned_);
    }
    judge(choices);
    Results results{.plan = plan_, .records = std::move(prepared_), .choices = std::move(choices)};
    for (std::vector<Record>* more : {&tuned_, &judged_}) {
      results.records.insert(results.records.end(), std::make_move_iterator(more->begin()),
                             std::make_move_iterator(more->end()));
    }
    return results;
  }

 private:
  static std::optional<Clock::time_point> last_start(const StudyOptions& options) {
    if (!options.max_hours) return std::nullopt;
    return Clock::now() +
           std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(*options.max_hours * 3600));
  }

  std::vector<Record> run_phase(const std::string& name, const std::vector<Task>& tasks, Work later) {
    if (tasks.empty()) return {};
    for (const Task& task : tasks) {
      later.steps += task.steps.value_or(task.config.steps);
      ++later.runs;
    }
    watcher_.on_phase(name, later);
    return scheduler_.run(tasks);
  }

  // What judging, and tuning from cell `first` on, will take.
  Work judging_work() const {
    const std::uint64_t runs = groups(plan_).size() * plan_.seeds.size();
    return {.runs = runs, .steps = runs * plan_.config.steps};
  }
  Work tuning_work(std::size_t first) const {
    const std::uint64_t runs = (plan_.cells.size() - first) * plan_.tune_seeds.size();
    return {.runs = runs, .steps = runs * plan_.tune_steps.value_or(plan_.config.steps)};
  }

  // Pilots of thresholds, and with a budget the bytes of a step, for the cells from `first` on.
  void prepare(std::size_t first) {
    const Work judging = judging_work();
    const Work tuning = tuning_work(first);
    const Work later{.runs = judging.runs + tuning.runs, .steps = judging.steps + tuning.steps};
    std::vector<Task> tasks;
    std::vector<std::size_t> cells;  // of the tasks
    for (std::size_t i = first; i < plan_.cells.size(); ++i) {
      if (!plan_.methods[plan_.cells[i].method_index].needs_pilot()) continue;
      const train::TrainConfig config = config_of(plan_, plan_.cells[i], pilot_seed(plan_));
      tasks.push_back({.phase = kPilot, .cell = plan_.cells[i], .config = config, .steps = pilot_steps(config)});
      cells.push_back(i);
    }
    take_prepared(run_phase("pilots", tasks, later), cells);
    if (!plan_.budget_bytes) return;
    tasks.clear();
    cells.clear();
    for (std::size_t i = first; i < plan_.cells.size(); ++i) {
      if (is_lost(i)) continue;
      train::TrainConfig config = config_with_thresholds(i, pilot_seed(plan_));
      config.eval_every = 0;
      config.steps = std::max(config.steps, kProbeSteps);
      tasks.push_back({.phase = kProbe, .cell = plan_.cells[i], .config = config, .steps = kProbeSteps});
      cells.push_back(i);
    }
    take_prepared(run_phase("bytes of a step", tasks, later), cells);
  }

  void take_prepared(std::vector<Record> records, const std::vector<std::size_t>& cells) {
    for (std::size_t i = 0; i < records.size(); ++i) {
      Prepared& prepared = prepared_cells_[cells[i]];
      const Record& record = records[i];
      if (record.status != kFinished) {
        prepared.is_lost = true;
        watcher_.on_note(fmt::format("{}, lr {:.6g}: the {} {}, so these settings are left out", label(record.cell),
                                     record.cell.lr, record.phase,
                                     record.has_diverged() ? "diverged" : "could not measure a threshold"));
        continue;
      }
      if (record.phase == kPilot) {
        prepared.lambda = record.lambda;
        prepared.downlink_lambda = record.downlink_lambda;
        continue;
      }
      prepared.steps = steps_within(*plan_.budget_bytes, record.bytes(), record.steps);
    }
    prepared_.insert(prepared_.end(), std::make_move_iterator(records.begin()), std::make_move_iterator(records.end()));
  }

  // Its pilot or probe diverged, so there is nothing to run.
  bool is_lost(std::size_t cell) const {
    const auto found = prepared_cells_.find(cell);
    return found != prepared_cells_.end() && found->second.is_lost;
  }

  train::TrainConfig config_with_thresholds(std::size_t cell, std::uint64_t seed) const {
    train::TrainConfig config = config_of(plan_, plan_.cells[cell], seed);
    const auto found = prepared_cells_.find(cell);
    if (found == prepared_cells_.end()) return config;
    set_thresholds(config, found->second.lambda, found->second.downlink_lambda);
    if (found->second.steps) set_steps(config, *found->second.steps);
    return config;
  }

  void add_tasks(std::size_t cell, const std::vector<std::uint64_t>& seeds, const char* phase,
                 std::vector<Task>& tasks) const {
    if (is_lost(cell)) return;
    for (const std::uint64_t seed : seeds) {
      tasks.push_back({.phase = phase, .cell = plan_.cells[cell], .config = config_with_thresholds(cell, seed)});
      if (phase == kTune && plan_.tune_steps) set_steps(tasks.back().config, *plan_.tune_steps);
    }
  }

  void tune(std::size_t first) {
    std::vector<Task> tasks;
    for (std::size_t i = first; i < plan_.cells.size(); ++i) add_tasks(i, plan_.tune_seeds, kTune, tasks);
    std::vector<Record> records = run_phase("tuning", tasks, judging_work());
    tuned_.insert(tuned_.end(), std::make_move_iterator(records.begin()), std::make_move_iterator(records.end()));
  }

  void judge(const std::vector<Choice>& choices) {
    std::vector<Task> tasks;
    for (const Choice& choice : choices) {
      if (choice.cell) add_tasks(*choice.cell, plan_.seeds, kJudge, tasks);
    }
    judged_ = run_phase("judging", tasks, {});
  }

  // Adds a cell beyond each edge that the best cell is at, with its other settings.
  void grow(const std::vector<Choice>& choices, std::uint64_t times) {
    for (const Choice& choice : choices) {
      if (!choice.cell) continue;
      const Cell best = plan_.cells[*choice.cell];
      const auto add = [&](const std::string& name, double edge, double wanted, const auto& set) {
        Cell cell = best;
        cell.grown = times;
        const auto note = [&](const std::string& words) {
          watcher_.on_note(
              fmt::format("{}: {} {:.6g} is the best and at the edge, {}", label(best), name, edge, words));
        };
        std::string reason;
        // A parameter may be a whole number.
        for (const double value : {wanted, std::round(wanted)}) {
          if ((value < edge) != (wanted < edge) || value == edge) continue;
          try {
            set(cell, value);
            complete(plan_, cell);
          } catch (const UsageError& error) {
            if (reason.empty()) reason = error.what();
            continue;
          }
          plan_.cells.push_back(cell);
          note(fmt::format("so {:.6g} is tried too", value));
          return;
        }
        if (!reason.empty()) note(fmt::format("and {:.6g} cannot be tried: {}", wanted, reason));
      };
      const auto set_lr = [](Cell& cell, double lr) {
        if (!(lr > 0) || lr > 3e38) throw UsageError("a learning rate is above 0 and at most 3e38");
        cell.lr = lr;
      };
      const std::vector<double> lrs = values_of(choice.group, [](const Cell& cell) { return cell.lr; });
      if (choice.at_low_edge) add("lr", best.lr, below(lrs), set_lr);
      if (choice.at_high_edge) add("lr", best.lr, above(lrs), set_lr);
      for (const auto& [name, edge] : choice.own_at_edge) {
        const auto set = [&key = name](Cell& cell, double value) { cell.own.at(key) = fmt::format("{}", value); };
        const auto value = [&key = name](const Cell& cell) { return *parse_number<double>(cell.own.at(key)); };
        const std::vector<double> values = values_of(choice.group, value);
        add(name, value(best), edge == "low" ? below(values) : above(values), set);
      }
    }
  }

  // Of all cells of a group: ascending and distinct.
  template <class Value>
  std::vector<double> values_of(const Group& group, Value value) const {
    std::vector<double> values;
    for (const Cell& cell : plan_.cells) {
      if (is_of(cell, group)) values.push_back(value(cell));
    }
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
    return values;
  }

  static double below(const std::vector<double>& values) {
    return values.size() > 1 ? next(values[1], values[0]) : rounded(values[0] / kGrowthOfOne, values[0]);
  }
  static double above(const std::vector<double>& values) {
    const std::size_t n = values.size();
    return n > 1 ? next(values[n - 2], values[n - 1]) : rounded(values[0] * kGrowthOfOne, values[0]);
  }
  // Beyond `edge`, in the ratio of the last two values, or at their distance if they have no ratio.
  static double next(double inner, double edge) {
    return rounded(inner * edge > 0 ? edge * (edge / inner) : edge + (edge - inner), edge);
  }

  // "topk, ratio 0.02"
  std::string label(const Cell& cell) const {
    const std::string& name = plan_.methods[cell.method_index].name();
    return cell.ratio.empty() ? name : fmt::format("{}, ratio {}", name, cell.ratio);
  }

  // To three digits, 0.03 and not 0.0299999, or to more, so that it stays on its side of the edge.
  static double rounded(double value, double edge) {
    for (int digits = 3; digits < 17; ++digits) {
      const double shorter = parse_number<double>(fmt::format("{:.{}g}", value, digits)).value_or(edge);
      if (shorter != edge && (shorter < edge) == (value < edge)) return shorter;
    }
    return value;
  }

  struct Prepared {
    bool is_lost = false;
    std::optional<double> lambda;
    std::optional<double> downlink_lambda;
    std::optional<std::uint64_t> steps;
  };

  Plan& plan_;
  StudyWatcher& watcher_;
  Scheduler scheduler_;
  std::map<std::size_t, Prepared> prepared_cells_;  // by index in Plan::cells
  std::vector<Record> prepared_;                    // pilots and probes
  std::vector<Record> tuned_;
  std::vector<Record> judged_;
};

}  // namespace

void check_folder(const std::string& folder, const Plan& plan) {
  const std::string path = folder + "/plan.json";
  if (!fs::exists(folder)) return;
  if (!fs::exists(path)) {
    // A kill may have left a temporary file.
    const auto is_visible = [](const fs::directory_entry& one) {
      return !one.path().filename().string().starts_with('.');
    };
    if (std::any_of(fs::directory_iterator(folder), fs::directory_iterator(), is_visible)) {
      throw UsageError(fmt::format("'{}' is not empty and has no plan.json: choose another folder for --out", folder));
    }
    return;
  }
  std::string differs;
  try {
    differs = difference(train::parse_json(files::read_file(path).text()), to_json(plan), plan.option_name);
  } catch (const UsageError& error) {
    differs = error.what();
  }
  if (differs.empty()) return;
  throw UsageError(fmt::format("'{}' is of another study: {}. Choose another folder for --out", folder, differs));
}

void claim_folder(const std::string& folder, const Plan& plan) {
  files::make_folder(folder);
  check_folder(folder, plan);
  const std::string path = folder + "/plan.json";
  if (!fs::exists(path)) write_text(path, pretty(to_json(plan)));
}

Results run_study(Plan& plan, const StudyOptions& options, StudyWatcher& watcher) {
  return Phases(plan, options, watcher).run();
}

void write_results(const Results& results, const std::string& folder) {
  write_text(folder + "/runs.csv", runs_csv(results));
  write_text(folder + "/timings.csv", timings_csv(results));
  write_text(folder + "/summary.md", summary_markdown(results));
  write_text(folder + "/summary.tex", summary_latex(results));
  write_text(folder + "/references.bib", references_bib(results));
  write_text(folder + "/summary.json", pretty(summary_json(results)));
}

}  // namespace sparsewire::study
