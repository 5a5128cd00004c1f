// sparsewire compare: the same training with every method, and what each of them costs. The quick form of a study: one
// seed, one learning rate, nothing tuned.
#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "commands.h"
#include "earlier_comparison.h"
#include "files/folder.h"
#include "files/lock.h"
#include "loop/config.h"
#include "loop/loop.h"
#include "loop/run_or_fail.h"
#include "loop/stop.h"
#include "options.h"
#include "problems/problem.h"
#include "progress.h"
#include "report/collect.h"
#include "reproduce/table.h"
#include "settings.h"
#include "sparsewire/errors.h"
#include "sparsewire/sparsifier.h"
#include "sparsewire/spec.h"
#include "sparsewire/transport.h"
#include "sparsewire/worker.h"
#include "study/method.h"
#include "terminal.h"
#include "text/counted.h"
#include "text/number.h"
#include "written_report.h"

namespace sparsewire::cli {
namespace {

using study::Method;
using train::TrainConfig;

constexpr std::string_view kMethods[] = {
    "dense", "topk", "randomk", "rtopk", "threshold", "regtopk", "topk | downlink=topk name=topk_both_ways",
    // As SparseLoCo; 10, because the default has 500 steps.
    "topk | local_steps=10 average=senders feedback=ef:decay=0.95 codec=auto:values=int2 exchange=allgather "
    "name=local_steps"};

struct CompareOptions {
  GivenSettings given;
  std::string ratio = "0.01";
  std::vector<std::string> methods;
  std::string out = "compare-out";
};

struct Row {
  const Method* method = nullptr;
  TrainConfig config;
  train::Result result;
  double seconds = 0;
  std::string failure;  // why it diverged; empty if it did not
};

// A small network on synthetic data: half a minute on two cores.
TrainConfig default_config() {
  TrainConfig config;
  config.workers = 8;
  config.steps = 500;
  config.eval_every = 50;
  return config;
}

std::vector<Method> all_methods() { return {std::begin(kMethods), std::end(kMethods)}; }

// Names, also several with commas between them; or methods as a study takes them.
std::vector<Method> chosen_methods(const std::vector<std::string>& given) {
  const std::vector<Method> all = all_methods();
  if (given.empty()) return all;
  std::string known;
  for (const Method& method : all) known += fmt::format("{}{}", known.empty() ? "" : ", ", method.name());
  std::vector<Method> chosen;
  const auto add = [&](const Method& method) {
    for (const Method& other : chosen) {
      if (other.name() == method.name()) throw UsageError(fmt::format("--methods: '{}' is given twice", other.name()));
    }
    chosen.push_back(method);
  };
  for (const std::string& text : given) {
    if (text.find_first_of(":|") != std::string::npos) {
      add(Method(text));
      continue;
    }
    for (std::size_t at = 0; at <= text.size();) {
      const std::size_t end = std::min(text.find(',', at), text.size());
      const std::string name = text.substr(at, end - at);
      const auto found = std::find_if(all.begin(), all.end(), [&](const Method& one) { return one.name() == name; });
      const std::vector<SparsifierInfo> others = sparsifiers();
      if (found != all.end()) {
        add(*found);
      } else if (std::any_of(others.begin(), others.end(), [&](const auto& one) { return one.name == name; })) {
        add(Method(name));
      } else {
        throw UsageError(fmt::format("--methods: '{}' is not a method; there are {}", name, known));
      }
      at = end + 1;
    }
  }
  return chosen;
}

// "topk.jsonl"
std::string metrics_name(const Method& method) {
  std::string name = method.name();
  for (char& letter : name) {
    const bool is_plain = std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '_' || letter == '=' ||
                          letter == '.' || letter == '-';
    if (!is_plain) letter = '_';
  }
  return name + ".jsonl";
}

TrainConfig config_for(const Method& method, const TrainConfig& common, const CompareOptions& options) {
  TrainConfig config = method.config(common, {.ratio = options.ratio, .lr = common.lr});
  config.metrics = options.out + "/" + metrics_name(method);
  return config;
}

// Before the first method runs: an error in the last one should not show minutes later.
void check_methods(const std::vector<Method>& methods, const TrainConfig& config, const CompareOptions& options,
                   const Layout& layout) {
  std::vector<std::string> names;
  for (const Method& method : methods) {
    if (std::find(names.begin(), names.end(), metrics_name(method)) != names.end()) {
      throw UsageError(fmt::format("{}: another method writes '{}' too; give it another name=", method.name(),
                                   metrics_name(method)));
    }
    names.push_back(metrics_name(method));
    try {
      if (method.combinations().size() > 1 || !method.lrs().empty()) {
        throw UsageError("lr= and lists of values are for 'sparsewire study', which chooses among them");
      }
      const TrainConfig one = config_for(method, config, options);
      train::check(one);
      run_on_threads(1, [&](Transport& transport) { Worker worker(train::worker_config(one), layout, transport); });
    } catch (const UsageError& error) {
      throw UsageError(fmt::format("{}: {}; to leave a method out, use --methods", method.name(), error.what()));
    }
  }
}

double checked_ratio(const std::string& given) {
  const auto ratio = parse_number<double>(given);
  if (ratio && kRatioRange.holds(*ratio)) return *ratio;
  throw UsageError(fmt::format("--ratio {} is not a number in (0, 1]", given));
}

Row run_method(const Method& method, const TrainConfig& config, train::Problem& problem) {
  Row row{.method = &method, .config = config, .result = {}, .failure = {}};
  const auto began = std::chrono::steady_clock::now();
  Progress progress(row.config, fmt::format("{:<15}", shortened(method.name(), 14)));
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
    if (!error.diverged_at()) throw;
    row.failure = error.what();  // that a method diverges is a result too
  }
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

Json row_json(const Row& row, double dense) {
  Json json{{"method", row.method->name()}, {"sparsifier", row.config.sparsifier}, {"exchange", row.config.exchange}};
  if (!row.config.downlink.empty()) json["downlink"] = row.config.downlink;
  if (row.config.local_steps > 1)
    json["local_steps"] = row.config.local_steps;  // the steps of its metrics are exchanges
  json["metrics"] = metrics_name(*row.method);
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

// What is known so far, as a table and as JSON.
class Comparison {
 public:
  // Of so many methods.
  Comparison(const TrainConfig& config, const train::Problem& problem, const CompareOptions& options,
             std::size_t methods)
      : methods_(methods),
        config_(config),
        headline_(train::headline_of(problem)),
        dense_(dense_bytes(config, problem.layout().dim())),
        dim_(problem.layout().dim()),
        options_(options) {}

  void add(Row row) {
    rows_.push_back(std::move(row));
    Report(options_.out + "/summary.json", json(), "").commit();  // a kill must not lose it
  }

  std::size_t size() const { return rows_.size(); }
  bool has_result() const {
    return std::any_of(rows_.begin(), rows_.end(), [](const Row& row) { return row.failure.empty(); });
  }

  Json json() const {
    Json common = train::to_json(config_);
    for (const char* key : {"sparsifier", "downlink", "metrics"}) common.erase(key);
    Json rows = Json::array();
    for (const Row& row : rows_) rows.push_back(row_json(row, dense_));
    return {{"config", common},
            {"ratio", checked_ratio(options_.ratio)},
            {"methods", rows},
            {"finished", rows_.size() == methods_}};
  }

  std::string text() const {
    std::vector<std::string> titles{"method", train::in_words(headline_.loss)};
    if (!headline_.metric.empty()) titles.push_back(train::in_words(headline_.metric));
    for (const char* title : {"bytes up", "bytes down", "of dense", "total error", "seconds"})
      titles.emplace_back(title);
    reproduce::Table table(titles);
    std::string failures;
    std::string local;
    for (const Row& row : rows_) {
      table.add(cells(row, titles.size()));
      if (row.config.local_steps != config_.local_steps) {
        local += fmt::format("{}: {} of how far weights moved, each after {} of each worker by itself.\n",
                             row.method->name(), counted(row.config.steps, "exchange"),
                             counted(row.config.local_steps, "step"));
      }
      if (!row.failure.empty()) failures += fmt::format("- {}: {}\n", row.method->name(), row.failure);
    }
    return wrapped(fmt::format(
               "{}: {}, {}, {}, ratio {}, {}, learning rate {}\n"
               "The settings are the same for all methods and tuned for none: 'sparsewire study' tunes them.\n\n",
               config_.problem, counted(dim_, "weight"), counted(config_.workers, "worker"),
               counted(config_.steps, "step"), options_.ratio, config_.optimiser, config_.lr)) +
           table.text() + wrapped(failures) + wrapped(local.empty() ? "" : "\n" + local) +
           wrapped(fmt::format("\nBytes are those of all workers; 'of dense' compares them with a dense exchange by "
                               "rings, 4 bytes a weight without headers. Total error: "
                               "||memory||^2 summed over the steps, a mean over the workers, and that of the servers.\n"
                               "Metrics of every evaluation: {}/\n",
                               options_.out));
  }

 private:
  std::vector<std::string> cells(const Row& row, std::size_t count) const {
    std::vector<std::string> all{shortened(row.method->name(), 20)};
    if (!row.failure.empty()) {
      all.emplace_back("diverged");
      all.resize(count - 1, "-");
    } else {
      const train::Totals& totals = row.result.totals;
      const auto number = [&](const std::string& name) { return row.result.evaluation->find(name).value(); };
      const double moved = bytes_moved(row);
      all.push_back(fmt::format("{:.5g}", number(headline_.loss)));
      if (!headline_.metric.empty()) all.push_back(fmt::format("{:.4g}", number(headline_.metric)));
      all.push_back(in_units(static_cast<double>(totals.bytes_up)));
      all.push_back(in_units(static_cast<double>(totals.bytes_down)));
      const bool is_more = moved > 1.05 * dense_;  // than rounds to 1.0
      all.push_back(moved == 0 || dense_ == 0 ? "-"
                    : is_more                 ? fmt::format("{:.1f} x", moved / dense_)
                                              : fmt::format("1/{:.1f}", dense_ / moved));
      all.push_back(fmt::format("{:.4g}", totals.total_error));
    }
    all.push_back(fmt::format("{:.2f}", row.seconds));
    return all;
  }

  std::size_t methods_;
  const TrainConfig& config_;
  train::Headline headline_;
  double dense_;
  std::uint64_t dim_;
  const CompareOptions& options_;
  std::vector<Row> rows_;
};

void compare(const CompareOptions& options) {
  ignore_broken_outputs();
  check_alone("compare runs its workers as threads, so start it without mpirun");
  TrainConfig config = default_config();
  options.given.apply(config);
  clear_outputs(config);
  if (config.workers == 0) config.workers = default_config().workers;
  const auto path_or_none = [](const std::string& path) { return path.empty() ? std::nullopt : std::optional(path); };
  check_distinct({{"--config", options.given.config_file},
                  {"--data", path_or_none(config.data)},
                  {"--test-data", path_or_none(config.test_data)},
                  {"--json", path_or_none(config.json)}});
  const std::vector<Method> methods = chosen_methods(options.methods);
  checked_ratio(options.ratio);
  const auto problem = train::make_problem(config.problem, train::problem_place(config));
  check_methods(methods, config, options, problem->layout());
  files::make_folder(options.out);
  const files::FolderLock lock(options.out);
  if (!config.json.empty()) check_place(config.json);  // it may be in that folder
  std::vector<std::string> usual;
  for (const Method& method : all_methods()) usual.push_back(metrics_name(method));
  EarlierComparison earlier(options.out, usual);

  Comparison all(config, *problem, options, methods.size());
  {
    const train::StopSignals signals;
    for (const Method& method : methods) {
      Row row = run_method(method, config_for(method, config, options), *problem);
      if (row.failure.empty() && !row.result.finished) {
        std::filesystem::remove(row.config.metrics);
        break;
      }
      all.add(std::move(row));
      earlier.remove();
    }
  }
  const bool is_whole = all.size() == methods.size();
  if (all.size() > 0) {
    const std::string page = options.out + "/report.html";
    const bool has_page = write_report(page, [&] { return report::collect({options.out}); });
    Report report(config.json.empty() ? std::nullopt : std::optional(config.json), all.json(),
                  all.text() + (has_page ? report_line(page) : ""));
    report.print();
    report.commit();
  }
  if (!is_whole) {
    throw std::runtime_error(fmt::format("stopped by a signal; {} of {} methods are done{}", all.size(), methods.size(),
                                         all.size() > 0 ? fmt::format(" and in '{}'", options.out) : ""));
  }
  if (!all.has_result()) throw std::runtime_error("every method diverged: try a smaller --lr");
}

}  // namespace

void add_compare(CLI::App& program) {
  CLI::App* const command =
      program.add_subcommand("compare", "Run the same training with every method and compare them");
  command->footer(
      "Every method has the same problem, seed, learning rate and number of steps. To\n"
      "rank methods, use 'sparsewire study'.\n"
      "regtopk differs from topk only in entries that the worker sent in the last step.\n"
      "If few are sent, these are rarely large again, and both choose the same entries.\n"
      "Ctrl-C ends the comparison; methods that are done are printed and kept.\n"
      "Examples:\n"
      "  sparsewire compare\n"
      "  sparsewire compare --ratio 0.001 --methods dense,topk --steps 2000\n"
      "  sparsewire compare --methods dense topk rtopk:r=4 'topk | downlink=topk'");
  add_load(*command);
  const auto options = std::make_shared<CompareOptions>();
  const auto add = [&](const char* name, std::string& value, const char* type, const char* help) {
    command->add_option(name, value, help)->type_name(type)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  };
  add("--ratio", options->ratio, "X", "Share of the entries that are sent (default 0.01)");
  command
      ->add_option(
          "--methods", options->methods,
          "Methods to run: names, or specs as in 'sparsewire study', also with local_steps=N (default: dense, topk, "
          "randomk, rtopk, threshold, regtopk, topk_both_ways, local_steps)")
      ->type_name("NAME");
  add("--out", options->out, "DIR", "Folder for metrics, summary.json and report.html (default compare-out)");
  add_config(*command, options->given);
  add_settings(*command, default_config(),
               {"sparsifier", "downlink", "downlink_codec", "checkpoint_dir", "checkpoint_every", "keep", "resume",
                "change", "save_weights", "metrics", "report", "transport"},
               options->given);
  command->callback([options] {
    try {
      compare(*options);
    } catch (const train::SharedError& error) {
      if (error.is_usage()) throw UsageError(error.what());
      throw;
    }
  });
}

}  // namespace sparsewire::cli
