// sparsewire compare: the same training with every method, and what each of them costs.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "commands.h"
#include "core/number.h"
#include "files/folder.h"
#include "options.h"
#include "progress.h"
#include "settings.h"
#include "sparsewire/errors.h"
#include "sparsewire/spec.h"
#include "sparsewire/transport.h"
#include "sparsewire/worker.h"
#include "train/config.h"
#include "train/loop.h"
#include "train/problem.h"
#include "train/run_or_fail.h"
#include "train/stop.h"

namespace sparsewire::cli {
namespace {

using train::TrainConfig;

struct Method {
  std::string_view name;
  std::string_view sparsifier;  // "{}" stands for the ratio
  std::string_view downlink;
};

constexpr Method kMethods[] = {{"dense", "dense", ""},
                               {"topk", "topk:ratio={}", ""},
                               {"randomk", "randomk:ratio={}", ""},
                               {"rtopk", "rtopk:ratio={}", ""},
                               {"threshold", "threshold:ratio={}", ""},
                               {"regtopk", "regtopk:ratio={}", ""},
                               {"topk_both_ways", "topk:ratio={}", "topk:ratio={}"}};

struct CompareOptions {
  GivenSettings given;
  std::string ratio = "0.01";
  std::string methods;
  std::string out = "compare-out";
};

struct Row {
  Method method;
  TrainConfig config;
  train::Result result;
  double seconds = 0;
  std::string failure;  // why there is no result; empty if there is one
};

// A small network on synthetic data: half a minute on two cores.
TrainConfig default_config() {
  TrainConfig config;
  config.workers = 8;
  config.steps = 500;
  config.eval_every = 50;
  return config;
}

std::vector<Method> chosen_methods(const std::string& names) {
  if (names.empty()) return {std::begin(kMethods), std::end(kMethods)};
  std::vector<Method> chosen;
  for (std::size_t at = 0; at <= names.size();) {
    const std::size_t end = std::min(names.find(',', at), names.size());
    const std::string name = names.substr(at, end - at);
    std::string known;
    for (const Method& method : kMethods) {
      if (method.name == name) chosen.push_back(method);
      known += fmt::format("{}{}", known.empty() ? "" : ", ", method.name);
    }
    if (chosen.empty() || chosen.back().name != name) {
      throw UsageError(fmt::format("--methods: '{}' is not a method; there are {}", name, known));
    }
    at = end + 1;
  }
  return chosen;
}

std::string with_ratio(std::string_view spec, const std::string& ratio) {
  std::string text(spec);
  const std::size_t hole = text.find("{}");
  return hole == std::string::npos ? text : text.replace(hole, 2, ratio);
}

std::string metrics_name(const Method& method) { return fmt::format("{}.jsonl", method.name); }

TrainConfig config_for(const Method& method, TrainConfig config, const CompareOptions& options) {
  config.sparsifier = with_ratio(method.sparsifier, options.ratio);
  config.downlink = with_ratio(method.downlink, options.ratio);
  if (method.name == "dense") config.exchange = "dense";
  config.metrics = options.out + "/" + metrics_name(method);
  return config;
}

// Before the first method runs: an error in the last one should not show minutes later.
void check_methods(const std::vector<Method>& methods, const TrainConfig& config, const CompareOptions& options,
                   const Layout& layout) {
  for (const Method& method : methods) {
    const TrainConfig one = config_for(method, config, options);
    try {
      train::check(one);
      run_on_threads(1, [&](Transport& transport) { Worker worker(train::worker_config(one), layout, transport); });
    } catch (const UsageError& error) {
      throw UsageError(fmt::format("{}: {}; to leave a method out, use --methods", method.name, error.what()));
    }
  }
}

double checked_ratio(const std::string& given) {
  const auto ratio = parse_number<double>(given);
  if (ratio && kRatioRange.holds(*ratio)) return *ratio;
  throw UsageError(fmt::format("--ratio {} is not a number in (0, 1]", given));
}

Row run_method(const Method& method, const TrainConfig& config, train::Problem& problem) {
  Row row{.method = method, .config = config, .result = {}, .failure = {}};
  const auto began = std::chrono::steady_clock::now();
  Progress progress(row.config, fmt::format("{:<15}", method.name));
  try {
    run_on_threads(
        static_cast<int>(config.workers),
        [&](Transport& transport) {
          train::Run run{.config = row.config, .problem = problem, .transport = transport};
          run.stop_requested = train::stop_requested;
          const bool is_root = transport.rank() == 0;
          if (is_root) run.on_step = [&](const train::StepReport& report) { progress.on_step(report); };
          const train::Result result = train::train(run);
          if (is_root) row.result = result;
        },
        deadline_of(config));
  } catch (const train::SharedError& error) {
    if (error.is_usage()) throw UsageError(error.what());
    row.failure = error.what();  // that a method diverges is a result too
  }
  if (row.failure.empty() && !row.result.finished) throw std::runtime_error("stopped by a signal");
  row.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return row;
}

double bytes_moved(const Row& row) {
  return static_cast<double>(row.result.totals.bytes_up + row.result.totals.bytes_down);
}

// What all workers send and receive in dense all-reduces of f32.
double dense_bytes(const TrainConfig& config, std::uint64_t dim) {
  return 2 * static_cast<double>(config.workers - 1) * static_cast<double>(dim * sizeof(float)) *
         static_cast<double>(config.steps);
}

// Of the column for that number.
std::size_t width_of(const std::string& name) { return std::max<std::size_t>(10, name.size()); }

Json row_json(const Row& row, double dense) {
  Json json{{"method", row.method.name}, {"sparsifier", row.config.sparsifier}, {"exchange", row.config.exchange}};
  if (!row.config.downlink.empty()) json["downlink"] = row.config.downlink;
  json["metrics"] = metrics_name(row.method);
  json["seconds"] = row.seconds;
  if (!row.failure.empty()) {
    json["failure"] = row.failure;
    return json;
  }
  const train::Totals& totals = row.result.totals;
  json["loss"] = totals.loss;
  for (const train::Measurement& one : row.result.evaluation->numbers) json[one.name] = one.value;
  add_totals(totals, json);
  json["ratio_to_dense"] = dense > 0 ? Json(bytes_moved(row) / dense) : Json(nullptr);
  json["weights_crc32c"] = fmt::format("{:08x}", row.result.weights_crc32c);
  return json;
}

std::string row_text(const Row& row, const train::Headline& headline, double dense) {
  if (!row.failure.empty()) return fmt::format("{:<15} {}\n", row.method.name, row.failure);
  const train::Totals& totals = row.result.totals;
  const double moved = bytes_moved(row);
  const auto number = [&](const std::string& name) { return row.result.evaluation->find(name).value(); };
  std::string text = fmt::format("{:<15} {:>{}.5g}", row.method.name, number(headline.loss), width_of(headline.loss));
  if (!headline.metric.empty()) {
    text += fmt::format(" {:>{}.4g}", number(headline.metric), width_of(headline.metric));
  }
  text += fmt::format(" {:>14} {:>14}", grouped(totals.bytes_up), grouped(totals.bytes_down));
  const bool is_more = moved > 1.05 * dense;  // than rounds to 1.0
  text += fmt::format(" {:>9}", moved == 0 || dense == 0 ? "-"
                                : is_more                ? fmt::format("{:.1f} x", moved / dense)
                                                         : fmt::format("1/{:.1f}", dense / moved));
  return text + fmt::format(" {:>11.4g} {:>8.2f}\n", totals.total_error, row.seconds);
}

std::string header(const train::Headline& headline) {
  std::string text = fmt::format("{:<15} {:>{}}", "method", train::in_words(headline.loss), width_of(headline.loss));
  if (!headline.metric.empty()) {
    text += fmt::format(" {:>{}}", train::in_words(headline.metric), width_of(headline.metric));
  }
  return text + fmt::format(" {:>14} {:>14} {:>9} {:>11} {:>8}\n", "bytes up", "bytes down", "of dense", "total error",
                            "seconds");
}

void compare(const CompareOptions& options) {
  ignore_broken_outputs();
  check_alone("compare runs its workers as threads, so start it without mpirun");
  TrainConfig config = default_config();
  options.given.apply(config);
  if (config.workers == 0) config.workers = default_config().workers;
  const std::vector<Method> methods = chosen_methods(options.methods);
  const double ratio = checked_ratio(options.ratio);
  const auto problem = train::make_problem(config.problem, train::problem_place(config));
  check_methods(methods, config, options, problem->layout());
  files::make_folder(options.out);
  if (!config.json.empty()) check_place(config.json);

  const double dense = dense_bytes(config, problem->layout().dim());
  std::string text = fmt::format(
      "{}: {} weights, {} workers, {} steps, ratio {}, {}, learning rate {}\n"
      "The settings are the same for all methods and tuned for none.\n\n",
      config.problem, grouped(problem->layout().dim()), config.workers, config.steps, options.ratio, config.optimiser,
      config.lr);
  const train::Headline headline = train::headline_of(*problem);
  text += header(headline);
  Json rows = Json::array();
  {
    const train::StopSignals signals;
    for (const Method& method : methods) {
      const Row row = run_method(method, config_for(method, config, options), *problem);
      text += row_text(row, headline, dense);
      rows.push_back(row_json(row, dense));
    }
  }
  Json common = train::to_json(config);
  for (const char* key : {"sparsifier", "downlink", "metrics"}) common.erase(key);
  const Json summary{{"config", common}, {"ratio", ratio}, {"methods", rows}};
  text += fmt::format(
      "\nBytes are those of all workers; 'of dense' compares them with a dense exchange.\n"
      "Total error: ||memory||^2 summed over the steps, a mean over the workers, and\n"
      "that of the servers.\n"
      "Metrics of every evaluation: {}/\n",
      options.out);

  Report(options.out + "/summary.json", summary, "").commit();
  Report report(config.json.empty() ? std::nullopt : std::optional(config.json), summary, text);
  report.print();
  report.commit();
}

}  // namespace

void add_compare(CLI::App& program) {
  CLI::App* const command =
      program.add_subcommand("compare", "Run the same training with every method and compare them");
  command->footer(
      "Every method has the same problem, seed, learning rate and number of steps.\n"
      "regtopk differs from topk only in entries that the worker sent in the last step.\n"
      "If few are sent, these are rarely large again, and both choose the same entries.\n"
      "Examples:\n"
      "  sparsewire compare\n"
      "  sparsewire compare --ratio 0.001 --methods dense,topk --steps 2000");
  const auto options = std::make_shared<CompareOptions>();
  const auto add = [&](const char* name, std::string& value, const char* type, const char* help) {
    command->add_option(name, value, help)->type_name(type)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  };
  add("--ratio", options->ratio, "X", "Share of the entries that are sent (default 0.01)");
  add("--methods", options->methods, "NAMES", "Methods to run, separated by commas (default: all)");
  add("--out", options->out, "DIR", "Folder for metrics and summary.json (default compare-out)");
  add_settings(*command, default_config(),
               {"sparsifier", "downlink", "downlink_codec", "checkpoint_dir", "checkpoint_every", "keep", "resume",
                "change", "save_weights", "metrics", "transport"},
               options->given);
  command->callback([options] { compare(*options); });
}

}  // namespace sparsewire::cli
