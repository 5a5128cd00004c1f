// sparsewire train: one training, by threads of this process or by the processes that mpirun started.
#include <fmt/core.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "commands.h"
#include "options.h"
#include "sparsewire/errors.h"
#include "sparsewire/transport.h"
#include "train/config.h"
#include "train/loop.h"
#include "train/problem.h"
#include "train/run_or_fail.h"
#include "train/stop.h"
#include "training.h"

namespace sparsewire::cli {
namespace {

using train::TrainConfig;

constexpr std::uint64_t kDefaultWorkers = 4;

std::optional<std::string> path_of(const std::string& given) {
  return given.empty() ? std::nullopt : std::optional(given);
}

std::unique_ptr<train::Problem> problem_of(const TrainConfig& config) {
  return train::make_problem(config.problem,
                             {.workers = static_cast<int>(config.workers), .seed = config.seed, .data = config.data});
}

// Hours later would be too late.
void check_outputs(const TrainConfig& config, const std::optional<std::string>& config_file) {
  check_distinct({{"--config", config_file},
                  {"--data", path_of(config.data)},
                  {"--metrics", path_of(config.metrics)},
                  {"--json", path_of(config.json)}});
  check_place(path_of(config.json));
}

Json result_json(const TrainConfig& config, const train::Result& result, std::string_view metric, double seconds) {
  Json json{{"config", train::to_json(config)}, {"step", result.step}, {"loss", result.totals.loss}};
  json["test_loss"] = result.evaluation->loss;
  if (!metric.empty()) json[std::string(metric)] = result.evaluation->metric;
  json["bytes_up"] = result.totals.bytes_up;
  json["bytes_down"] = result.totals.bytes_down;
  json["bytes_served"] = result.totals.bytes_served;
  json["total_error"] = result.totals.total_error;
  json["seconds"] = seconds;
  json["weights_crc32c"] = hex(result.weights_crc32c);
  return json;
}

std::string result_text(const TrainConfig& config, const train::Result& result, std::string_view metric) {
  std::string text =
      fmt::format("step {}: loss {:.6g}, test loss {:.6g}", result.step, result.totals.loss, result.evaluation->loss);
  if (!metric.empty()) text += fmt::format(", {} {:.6g}", metric, result.evaluation->metric);
  text += fmt::format("\n{} workers sent {} bytes up and got {} down\n", config.workers,
                      grouped(result.totals.bytes_up), grouped(result.totals.bytes_down));
  return text + fmt::format("weights {}\n", hex(result.weights_crc32c));
}

struct Outcome {
  train::Result result;
  double seconds = 0;
};

// What rank 0 has to say at the end.
void conclude(const TrainConfig& config, const Outcome& outcome, std::string_view metric) {
  const train::Result& result = outcome.result;
  if (!result.finished) {
    throw std::runtime_error(fmt::format(
        "stopped after step {} of {}, as asked to; {}", result.step, config.steps,
        result.checkpoint ? fmt::format("to go on from '{}', add --resume to the same command", *result.checkpoint)
                          : "without --checkpoint-dir there is nothing to go on from"));
  }
  Report report(path_of(config.json), result_json(config, result, metric, outcome.seconds),
                result_text(config, result, metric));
  report.print();
  report.commit();
}

Outcome run_rank(const TrainConfig& config, train::Problem& problem, Transport& transport) {
  const auto began = std::chrono::steady_clock::now();
  std::optional<Progress> progress;
  train::Run run{.config = config, .problem = problem, .transport = transport};
  run.stop_requested = train::stop_requested;
  if (transport.rank() == 0) {
    progress.emplace(config, "");
    run.on_step = [&](const train::StepReport& report) { progress->on_step(report); };
    run.log = [&](const std::string& message) { progress->log(message); };
  }
  Outcome outcome{.result = train::train(run)};
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return outcome;
}

void train_on_threads(TrainConfig config) {
  if (config.workers == 0) config.workers = kDefaultWorkers;
  const auto problem = problem_of(config);
  Outcome outcome;
  const auto body = [&](Transport& transport) {
    const Outcome mine = run_rank(config, *problem, transport);
    if (transport.rank() == 0) outcome = mine;
  };
  {
    const train::StopSignals signals;
    run_on_threads(static_cast<int>(config.workers), body, deadline_of(config));
  }
  conclude(config, outcome, problem->metric());
}

// Every process makes the whole problem, and has one worker of it.
void train_on_mpi(TrainConfig config, Transport& transport) {
  const auto ranks = static_cast<std::uint64_t>(transport.size());
  std::unique_ptr<train::Problem> problem;
  train::run_or_fail_on_all(transport, [&] {
    if (config.workers != 0 && config.workers != ranks) {
      throw UsageError(fmt::format("--workers {}: mpirun started {}", config.workers, ranks));
    }
    config.workers = ranks;
    problem = problem_of(config);
  });
  Outcome outcome;
  {
    const train::StopSignals signals;
    outcome = run_rank(config, *problem, transport);
  }
  if (transport.rank() == 0) conclude(config, outcome, problem->metric());
  if (transport.rank() != 0 && !outcome.result.finished) throw SilentFailure(kFailed);  // rank 0 says it
}

void train_on_mpi(const TrainConfig& config) {
  const auto transport = make_mpi_transport(deadline_of(config));
  try {
    train_on_mpi(config, *transport);
  } catch (const train::SharedError& error) {
    if (transport->rank() != 0) throw SilentFailure(error.is_usage() ? kWrongUsage : kFailed);  // rank 0 says it
    throw;
  }
}

void train(const GivenSettings& given) {
  ignore_broken_outputs();
  TrainConfig config;
  given.apply(config);
  train::check(config);
  if (config.transport == "threads") check_alone("add --transport mpi");
  check_outputs(config, given.config_file);
  try {
    config.transport == "mpi" ? train_on_mpi(config) : train_on_threads(config);
  } catch (const train::SharedError& error) {
    if (error.is_usage()) throw UsageError(error.what());
    throw;
  }
}

}  // namespace

void add_train(CLI::App& program) {
  CLI::App* const command = program.add_subcommand("train", "Train a problem with many workers");
  command->footer(
      "Ctrl-C, SIGTERM and SIGHUP stop after a step, with a checkpoint if there is a folder for them; --resume goes "
      "on\n"
      "bit for bit as if nothing had happened.\n"
      "Examples:\n"
      "  sparsewire train --workers 8 --sparsifier topk:ratio=0.01 --downlink topk:ratio=0.01 --steps 500\n"
      "  sparsewire train --checkpoint-dir run1 --metrics run1.jsonl --resume\n"
      "  mpirun -n 4 sparsewire train --transport mpi --exchange allgather --json result.json");
  const auto given = std::make_shared<GivenSettings>();
  command
      ->add_option("--config", given->config_file,
                   "A JSON file of options by their long names; the command line counts more")
      ->type_name("FILE")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  add_settings(*command, TrainConfig{}, {}, *given);
  command->callback([given] { train(*given); });
}

}  // namespace sparsewire::cli
