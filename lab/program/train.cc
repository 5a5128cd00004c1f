// sparsewire train: one training, on threads of this process or on the processes that mpirun started.
#include <fmt/core.h>

#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "commands.h"
#include "loop/config.h"
#include "loop/loop.h"
#include "loop/run_or_fail.h"
#include "loop/stop.h"
#include "message.h"
#include "options.h"
#include "problems/problem.h"
#include "progress.h"
#include "report/collect.h"
#include "report/page.h"
#include "settings.h"
#include "sparsewire/errors.h"
#include "sparsewire/transport.h"
#include "terminal.h"
#include "text/counted.h"
#include "written_report.h"

namespace sparsewire::cli {
namespace {

using train::TrainConfig;

constexpr std::uint64_t kDefaultWorkers = 4;

std::optional<std::string> path_of(const std::string& given) {
  return given.empty() ? std::nullopt : std::optional(given);
}

std::unique_ptr<train::Problem> problem_of(const TrainConfig& config) {
  return train::make_problem(config.problem, train::problem_place(config));
}

// At the start: after hours of training it would be too late. The report and the weights are written by rank 0.
void check_outputs(const TrainConfig& config, const std::optional<std::string>& config_file, bool is_root) {
  check_distinct({{"--config", config_file},
                  {"--data", path_of(config.data)},
                  {"--test-data", path_of(config.test_data)},
                  {"--init-weights", path_of(config.init_weights)},
                  {"--save-weights", path_of(config.save_weights)},
                  {"--metrics", path_of(config.metrics)},
                  {"--json", path_of(config.json)},
                  {"--report", path_of(config.report)}});
  if (!is_root) return;
  check_place(path_of(config.json));
  check_place(path_of(config.save_weights));
  if (!config.report.empty()) report::check_output(config.report);
  check_place(path_of(config.report));
}

Json result_json(const TrainConfig& config, const train::Result& result, const Layout& layout, double seconds) {
  Json json{{"config", train::to_json(config)}, {"step", result.step}, {"loss", result.totals.loss}};
  for (const train::Measurement& one : result.evaluation->numbers) json[one.name] = one.value;
  add_totals(result.totals, json);
  if (!result.changes.empty()) json["changes"] = result.changes;
  if (!config.save_weights.empty()) {
    Json& tensors = json["tensors"] = Json::array();
    for (const TensorRange& tensor : layout.tensors()) {
      tensors.push_back({{"name", tensor.name.empty() ? "weight" : tensor.name}, {"size", tensor.size}});
    }
  }
  json["sifted_on"] = result.sifted_on.kind == Device::host ? "host" : "cuda";
  json["seconds"] = seconds;
  json["weights_crc32c"] = fmt::format("{:08x}", result.weights_crc32c);
  return json;
}

std::string result_text(const TrainConfig& config, const train::Result& result) {
  std::string text = fmt::format("step {}:", result.step);
  std::string_view before = " ";
  for (const train::Measurement& one : result.evaluation->numbers) {
    text += fmt::format("{}{} {:.6g}", before, train::in_words(one.name), one.value);
    before = ", ";
  }
  text += result.step == 0 ? std::string(" (before the first step)")
                           : fmt::format(" (loss of the last batches {:.6g})", result.totals.loss);
  text += fmt::format("\n{} sent {} bytes up and received {} down\n", counted(config.workers, "worker"),
                      grouped(result.totals.bytes_up), grouped(result.totals.bytes_down));
  return text + fmt::format("CRC-32C of the weights: {:08x}\n", result.weights_crc32c);
}

// The page of --report, on rank 0. What it shows are the lines of --metrics; without that option those that would be
// there.
class TrainingPage {
 public:
  explicit TrainingPage(const TrainConfig& config)
      : config_(config), lines_(kName, report::kMostLinesOfARun), is_wanted_(!config.report.empty()) {}

  void on_step(const train::StepReport& step) {
    const bool is_kept = is_wanted_ && config_.metrics.empty() && (step.evaluation || step.compression);
    if (is_kept) lines_.add(train::shown(train::step_json(step)) + '\n');
  }

  // Returns whether there is one.
  bool write(const Json& result, const char* status, std::optional<std::uint64_t> diverged_at = {}) {
    return is_wanted_ && write_report(config_.report, [&] {
             report::Metrics metrics = config_.metrics.empty()
                                           ? lines_.finish()
                                           : report::read_metrics(config_.metrics, kName, report::kMostLinesOfARun);
             return report::collect_training(result, std::move(metrics), status, diverged_at);
           });
  }
  void write_diverged(const train::SharedError& error) {
    if (error.is_usage()) return;
    write({{"config", train::to_json(config_)}}, error.diverged_at() ? report::kDiverged : report::kInterrupted,
          error.diverged_at());
  }

 private:
  static constexpr const char* kName = "metrics";
  const TrainConfig& config_;
  report::MetricsReader lines_;
  bool is_wanted_;
};

struct TrainOutcome {
  train::Result result;
  double seconds = 0;
};

// What rank 0 prints at the end.
void conclude(const TrainConfig& config, const TrainOutcome& outcome, const Layout& layout, TrainingPage& page) {
  const train::Result& result = outcome.result;
  if (!result.finished) {
    page.write({{"config", train::to_json(config)}}, report::kInterrupted);
    throw std::runtime_error(fmt::format(
        "stopped by a signal after step {} of {}; {}", result.step, config.steps,
        result.checkpoint ? fmt::format("to continue from '{}', add --resume to the same command", *result.checkpoint)
                          : "without --checkpoint-dir there is no checkpoint to continue from"));
  }
  const Json json = result_json(config, result, layout, outcome.seconds);
  std::string text = wrapped(result_text(config, result));
  if (page.write(json, report::kFinished)) text += report_line(config.report);
  Report report(path_of(config.json), json, text);
  report.print();
  report.commit();
}

TrainOutcome run_rank(const TrainConfig& config, train::Problem& problem, Transport& transport, TrainingPage& page) {
  const auto began = std::chrono::steady_clock::now();
  std::optional<Progress> progress;
  train::Run run{.config = config, .problem = problem, .transport = transport};
  run.stop_requested = train::stop_requested;
  if (transport.rank() == 0) {
    progress.emplace(config, "");
    run.on_step = [&](const train::StepReport& report) {
      progress->on_step(report);
      page.on_step(report);
    };
    run.log = [&](const std::string& message) { progress->log(message); };
  }
  TrainOutcome outcome;
  outcome.result = train::train(run);
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return outcome;
}

void train_on_threads(TrainConfig config, const std::optional<std::string>& config_file) {
  check_outputs(config, config_file, /*is_root=*/true);
  if (config.workers == 0) config.workers = kDefaultWorkers;
  const auto problem = problem_of(config);
  TrainingPage page(config);
  TrainOutcome outcome;
  const auto body = [&](Transport& transport) {
    const TrainOutcome mine = run_rank(config, *problem, transport, page);
    if (transport.rank() == 0) outcome = mine;
  };
  try {
    const train::StopSignals signals;
    run_on_threads(static_cast<int>(config.workers), body, deadline_of(config));
  } catch (const train::SharedError& error) {  // of any rank: rank 0 may have seen only that another one had ended
    page.write_diverged(error);
    throw;
  }
  conclude(config, outcome, problem->layout(), page);
}

// Who forgot mpirun should not train alone without knowing it.
void check_number_of_processes(const TrainConfig& config, std::uint64_t processes) {
  if (config.workers != 0 && config.workers != processes) {
    throw UsageError(
        fmt::format("--workers {} with --transport mpi, but {}: start it with 'mpirun -n {} sparsewire "
                    "train ...', or leave --transport mpi out to train on threads",
                    config.workers,
                    processes == 1 ? "this is the only process" : fmt::format("mpirun started {} processes", processes),
                    config.workers));
  }
  if (config.workers != 0 || processes != 1) return;
  complain(
      "--transport mpi: this is the only process, so one worker trains alone; to train with N workers, start it with "
      "'mpirun -n N sparsewire train ...'");
}

// Every process makes the whole problem, and runs one worker of it.
void train_on_mpi(TrainConfig config, const std::optional<std::string>& config_file, Transport& transport) {
  const auto ranks = static_cast<std::uint64_t>(transport.size());
  std::unique_ptr<train::Problem> problem;
  train::run_or_fail_on_all(transport, [&] {
    check_number_of_processes(config, ranks);
    check_outputs(config, config_file, transport.rank() == 0);
    config.workers = ranks;
    problem = problem_of(config);
  });
  TrainingPage page(config);
  TrainOutcome outcome;
  try {
    const train::StopSignals signals;
    outcome = run_rank(config, *problem, transport, page);
  } catch (const train::SharedError& error) {
    if (transport.rank() == 0) page.write_diverged(error);
    throw;
  }
  if (transport.rank() == 0) conclude(config, outcome, problem->layout(), page);
  if (transport.rank() != 0 && !outcome.result.finished) throw SilentFailure(kFailed);  // rank 0 prints it
}

void train_on_mpi(const TrainConfig& config, const std::optional<std::string>& config_file) {
  const auto transport = make_mpi_transport(deadline_of(config));
  try {
    train_on_mpi(config, config_file, *transport);
  } catch (const train::SharedError& error) {
    if (transport->rank() != 0) throw SilentFailure(error.is_usage() ? kWrongUsage : kFailed);  // rank 0 prints it
    throw;
  }
}

void train(const GivenSettings& given) {
  ignore_broken_outputs();
  TrainConfig config;
  given.apply(config);
  train::check(config);
  if (config.transport == "threads") check_alone("add --transport mpi to train together");
  given.check_needs(config);
  try {
    config.transport == "mpi" ? train_on_mpi(config, given.config_file) : train_on_threads(config, given.config_file);
  } catch (const train::SharedError& error) {
    if (error.is_usage()) throw UsageError(error.what());
    throw;
  }
}

}  // namespace

void add_train(CLI::App& program) {
  CLI::App* const command = program.add_subcommand("train", "Train a problem with several workers");
  command->footer(
      "Ctrl-C, SIGTERM and SIGHUP stop the training after the current step, and write\n"
      "a checkpoint if there is --checkpoint-dir. A resumed training ends with the same\n"
      "bits as one that was never stopped.\n"
      "Examples:\n"
      "  sparsewire train --workers 8 --downlink topk:ratio=0.01 --steps 500\n"
      "  sparsewire train --checkpoint-dir run1 --metrics run1.jsonl --resume\n"
      "  sparsewire train --checkpoint-dir run1 --resume --lr 0.01 --change lr\n"
      "  sparsewire train --problem logreg --data a9a --test-data a9a.t --lr 0.5\n"
      "  mpirun -n 4 sparsewire train --transport mpi --json result.json");
  add_load(*command);
  const auto given = std::make_shared<GivenSettings>();
  command
      ->add_option("--preset", given->preset,
                   "Options that belong together; those of --config and the command line override them. sparseloco: "
                   "30 local steps of adamw, 64 of each 4096 entries divided by their senders, 2 bits a value, decay "
                   "0.95. diloco: 30 local steps, all weights, outer lr 0.7, outer momentum 0.9")
      ->type_name("NAME")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  add_config(*command, *given);
  add_settings(*command, TrainConfig{}, {}, *given);
  command->callback([given] { train(*given); });
}

}  // namespace sparsewire::cli
