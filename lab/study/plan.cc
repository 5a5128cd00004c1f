#include "study/plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <span>
#include <utility>

#include "loop/weights_file.h"
#include "sparsewire/errors.h"
#include "sparsewire/sifter.h"
#include "sparsewire/support/crc32c.h"
#include "sparsewire/transport.h"
#include "sparsewire/worker.h"
#include "study/build_id.h"
#include "text/number.h"

namespace sparsewire::study {
namespace {

constexpr int kSchema = 1;

// Options that say where and how something is written, or how long to wait, and options of checkpoints.
constexpr std::string_view kNotOfResult[] = {
    "data",           "test_data",        "data_dir", "init_weights", "save_weights", "check_every",
    "checkpoint_dir", "checkpoint_every", "keep",     "resume",       "change",       "metrics",
    "json",           "report",           "deadline", "transport",    "quiet",        "metrics_every_step"};

// Options that differ by cell or seed, so they are not common to all runs.
constexpr std::string_view kOfCell[] = {"sparsifier", "downlink", "lr", "seed"};

template <class Words>
bool is_among(std::string_view word, const Words& words) noexcept {
  return std::find(std::begin(words), std::end(words), word) != std::end(words);
}

std::vector<Method> parse_methods(const Request& request) {
  std::vector<Method> methods;
  for (const std::string& text : request.methods) {
    Method method(text);
    for (const Method& other : methods) {
      if (other.name() != method.name() && other.spec() != method.spec()) continue;
      throw UsageError(
          fmt::format("--methods: '{}' and '{}' are the same, or have the same name", other.spec(), method.spec()));
    }
    methods.push_back(std::move(method));
  }
  if (methods.empty()) throw UsageError("--methods: at least one method is needed");
  return methods;
}

std::uint64_t entries_of(const std::string& sparsifier, const std::string& scope, const Layout& layout) {
  const Sifter sifter(sparsifier, "ef", {.layout = layout, .scope = scope == "layer" ? Scope::layer : Scope::model});
  return static_cast<std::uint64_t>(std::llround(sifter.expected_entries()));
}

// In ascending order. Those that send as many entries as a smaller one are left out, with a note.
std::vector<std::string> distinct_ratios(const Request& request, Plan& plan, const Layout& layout) {
  std::vector<std::pair<double, std::string>> sorted;
  for (const std::string& given : request.ratios) {
    const auto ratio = parse_number<double>(given);
    if (!ratio || !kRatioRange.holds(*ratio)) {
      throw UsageError(fmt::format("--ratio {} is not a number in {}", given, kRatioRange.text()));
    }
    sorted.emplace_back(*ratio, given);
  }
  std::sort(sorted.begin(), sorted.end());
  std::vector<std::string> kept;
  std::uint64_t last = 0;
  for (const auto& [ratio, given] : sorted) {
    const std::uint64_t k = entries_of("topk:ratio=" + given, plan.config.scope, layout);
    if (k != last) {
      kept.push_back(given);
    } else if (given != kept.back()) {
      plan.notes.push_back(
          fmt::format("ratio {} is left out: like {} it sends {} of {} entries", given, kept.back(), k, layout.dim()));
    }
    last = k;
    // Not so for what is left out above: that note says it.
    const double share = static_cast<double>(k) / static_cast<double>(layout.dim());
    if (given == kept.back() && std::abs(share - ratio) > 0.1 * ratio) {
      plan.notes.push_back(fmt::format("ratio {} sends {} of {} entries", given, k, layout.dim()));
    }
  }
  return kept;
}

std::vector<double> distinct(std::vector<double> numbers) {
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

const std::vector<double>& lrs_of(const Plan& plan, const Method& method) {
  return method.lrs().empty() ? plan.lrs : method.lrs();
}

// Once for all runs, so it may be a pipe, and a file that changes meanwhile changes nothing.
void read_initial_weights(const std::string& path, Plan& plan) {
  if (path.empty()) return;
  plan.initial_weights = train::read_weights(path, plan.dim);
  const std::uint32_t checksum = crc32c(std::as_bytes(std::span(plan.initial_weights)));
  plan.init_weights = fmt::format("{} weights, CRC-32C {:08x}", plan.dim, checksum);
  plan.notes.push_back(fmt::format("every run starts from given weights ({})", plan.init_weights));
}

void check_choices(const Plan& plan) {
  if (!plan.tune_seeds.empty()) return;
  for (const Method& method : plan.methods) {
    const std::size_t count = method.combinations().size() * lrs_of(plan, method).size();
    if (count <= 1) continue;
    throw UsageError(fmt::format(
        "with --tune-seeds 0 nothing can be chosen, but '{}' has {} combinations of settings: give one --lr "
        "and one value of each parameter",
        method.spec(), count));
  }
}

void add_cells(Plan& plan) {
  for (std::size_t i = 0; i < plan.methods.size(); ++i) {
    const Method& method = plan.methods[i];
    if (method.config(plan.config, {.ratio = "0.5", .lr = 1}).local_steps != plan.config.local_steps) {
      throw UsageError(
          fmt::format("--methods: '{}': the runs of a study have equally many exchanges: give --local-steps to all "
                      "methods, or use 'sparsewire compare'",
                      method.spec()));
    }
    if (method.takes_ratio() && plan.ratios.empty()) {
      throw UsageError(fmt::format("--methods: '{}' needs a ratio: add --ratio", method.spec()));
    }
    for (const std::string& ratio : method.takes_ratio() ? plan.ratios : std::vector<std::string>{""}) {
      for (const auto& own : method.combinations()) {
        Cell cell{.method = method.spec(), .method_index = i, .ratio = ratio, .lr = 0, .own = own};
        for (const double lr : lrs_of(plan, method)) {
          cell.lr = lr;
          try {
            complete(plan, cell);
          } catch (const UsageError& error) {
            throw UsageError(fmt::format("--methods: '{}': {}", method.spec(), error.what()));
          }
          plan.cells.push_back(cell);
        }
      }
    }
  }
}

std::size_t find_baseline(const Plan& plan, const std::optional<std::string>& given) {
  const std::string wanted = given.value_or("dense");
  std::string names;
  for (std::size_t i = 0; i < plan.methods.size(); ++i) {
    if (plan.methods[i].name() == wanted || plan.methods[i].spec() == wanted) return i;
    names += fmt::format("{}{}", i == 0 ? "" : ", ", plan.methods[i].name());
  }
  if (given) throw UsageError(fmt::format("--baseline '{}' is not one of the methods; there are {}", *given, names));
  return 0;
}

// The measures of this problem; the first is the default.
std::vector<std::string> measures_of(const train::Problem& problem) {
  std::vector<std::string> names;
  if (problem.has(train::Part::test)) names.emplace_back(kTestLoss);
  if (problem.has(train::Part::validation)) names.emplace_back(kValLoss);
  names.emplace_back(kTrainLoss);
  if (!problem.metric().empty()) names.emplace_back(kMetric);
  return names;
}

// Those that settings can be chosen by, without the test data; the first is the default.
std::vector<std::string> tuning_measures_of(const train::Problem& problem) {
  if (!problem.has(train::Part::validation)) return {kTrainLoss};
  std::vector<std::string> names{kValLoss};
  if (!problem.metric().empty() && problem.is_metric_of_samples()) names.emplace_back(kValMetric);
  return names;
}

// What was given for the option; the first of `names` if nothing was.
std::string choose_measure(const char* option, const std::optional<std::string>& given,
                           const std::vector<std::string>& names) {
  if (!given) return names.front();
  if (is_among(*given, names)) return *given;
  std::string all;
  for (const std::string& name : names) all += fmt::format("{}{}", all.empty() ? "" : ", ", name);
  throw UsageError(
      fmt::format("{} '{}' is not measured here; there {} {}", option, *given, names.size() == 1 ? "is" : "are", all));
}

std::vector<std::uint64_t> seeds_from(std::uint64_t first, std::uint64_t count) {
  std::vector<std::uint64_t> seeds;
  for (std::uint64_t i = 0; i < count; ++i) seeds.push_back(first + i);
  return seeds;
}

std::string brief(const Json& value) {
  constexpr std::size_t kLongest = 60;
  std::string text = value.is_string() ? value.get<std::string>() : train::shown(value);
  if (value.is_null()) return "not given";
  return text.size() > kLongest ? text.substr(0, kLongest - 3) + "..." : text;
}

}  // namespace

bool is_of_result(std::string_view option) noexcept { return !is_among(option, kNotOfResult); }

std::vector<Group> groups(const Plan& plan) {
  std::vector<Group> all;
  for (const Cell& cell : plan.cells) {
    const Group group{.method_index = cell.method_index, .ratio = cell.ratio};
    if (std::find(all.begin(), all.end(), group) == all.end()) all.push_back(group);
  }
  return all;
}

bool is_higher_better(const Plan& plan, std::string_view measure) noexcept {
  return (measure == kMetric || measure == kValMetric) && plan.metric == "accuracy";  // not a distance, nor bits
}

std::string unequal_lrs(const Plan& plan) {
  std::vector<std::pair<std::vector<double>, std::string>> lists;  // and the names of the methods that have them
  for (const Method& method : plan.methods) {
    const std::vector<double>& lrs = lrs_of(plan, method);
    const auto same = std::find_if(lists.begin(), lists.end(), [&](const auto& one) { return one.first == lrs; });
    if (same == lists.end()) {
      lists.emplace_back(lrs, method.name());
    } else {
      same->second += ", " + method.name();
    }
  }
  if (lists.size() == 1) return "";
  std::string text;
  for (const auto& [lrs, names] : lists) {
    text += (text.empty() ? "" : "; ") + names + ":";
    for (const double lr : lrs) text += fmt::format(" {:.6g}", lr);
  }
  return fmt::format(
      "methods had different learning rates to choose from ({}): what looks like a difference between "
      "methods may be one between learning rates",
      text);
}

void complete(const Plan& plan, Cell& cell) {
  const train::TrainConfig config = plan.methods[cell.method_index].config(plan.config, cell);
  train::check(config);
  run_on_threads(1, [&](Transport& one) { Worker worker(train::worker_config(config), plan.layout, one); });
  cell.k = entries_of(config.sparsifier, config.scope, plan.layout);
}

Plan make_plan(const Request& request, const train::Problem& problem) {
  Plan plan;
  plan.config = request.config;
  plan.methods = parse_methods(request);
  plan.dim = problem.layout().dim();
  plan.layout = problem.layout();
  plan.data = problem.data_fingerprint();
  plan.test_data = problem.test_fingerprint();
  read_initial_weights(request.config.init_weights, plan);
  plan.metric = problem.metric();
  plan.ratios = distinct_ratios(request, plan, problem.layout());
  constexpr std::uint64_t kForTarget = 5;  // the start included
  const std::uint64_t every = request.config.eval_every == 0 ? request.config.steps : request.config.eval_every;
  const std::uint64_t evaluations = 1 + (request.config.steps + every - 1) / every;
  if (evaluations < kForTarget && !request.budget_bytes) {
    const bool has_too_few_steps = request.config.steps + 1 < kForTarget;  // even with one after each
    plan.notes.push_back(
        fmt::format("no run can reach a target: that needs {} evaluations, and there are {}; choose {}", kForTarget,
                    evaluations, has_too_few_steps ? "more --steps" : "another --eval-every"));
  }
  plan.lrs = distinct(request.lrs);
  if (request.seeds == 0 || request.seeds > kTuneSeedsFrom) {
    throw UsageError(fmt::format("--seeds {} is not in [1, {}]", request.seeds, kTuneSeedsFrom));
  }
  plan.seeds = seeds_from(request.config.seed, request.seeds);
  plan.tune_seeds = seeds_from(request.config.seed + kTuneSeedsFrom, request.tune_seeds);
  plan.baseline = find_baseline(plan, request.baseline);
  plan.primary = choose_measure("--primary", request.primary, measures_of(problem));
  plan.tuned_by = choose_measure("--tuned-by", request.tuned_by, tuning_measures_of(problem));
  plan.target_by = problem.has(train::Part::validation) ? kValLoss : kTrainLoss;
  // The target and equal bytes need it at every evaluation.
  if (plan.target_by == kTrainLoss || plan.primary == kTrainLoss) plan.config.eval_train = true;
  plan.target = request.target;
  plan.budget_bytes = request.budget_bytes;
  if (plan.budget_bytes && plan.config.workers == 1) {
    throw UsageError("--budget-bytes needs at least 2 workers: one alone sends nothing");
  }
  plan.tune_steps = request.tune_steps;
  if (plan.tune_steps && plan.budget_bytes) throw UsageError("--tune-steps and --budget-bytes cannot be combined");
  if (plan.tune_steps && (*plan.tune_steps == 0 || *plan.tune_steps > plan.config.steps)) {
    throw UsageError(
        fmt::format("--tune-steps {} is not in [1, {}], the steps of a run", *plan.tune_steps, plan.config.steps));
  }
  plan.grow = request.grow;
  if (plan.grow && plan.tune_seeds.empty()) throw UsageError("--grow needs --tune-seeds: it follows what they show");
  check_choices(plan);
  if (const std::string words = unequal_lrs(plan); !words.empty()) plan.notes.push_back(words);
  add_cells(plan);
  return plan;
}

Json environment() {
#if defined(__clang__)
  const std::string compiler = "clang " __clang_version__;
#else
  const std::string compiler = "gcc " __VERSION__;
#endif
#if defined(__x86_64__)
  const std::string architecture = "x86_64";
#elif defined(__aarch64__)
  const std::string architecture = "aarch64";
#else
  const std::string architecture = "other";
#endif
  return {{"sparsewire", SPARSEWIRE_VERSION},
          {"build", build_id()},
          {"compiler", compiler},
          {"architecture", architecture}};
}

Json to_json(const Plan& plan) {
  Json methods = Json::array();
  for (const Method& method : plan.methods) methods.push_back({{"name", method.name()}, {"spec", method.spec()}});
  Json config = Json::object();
  for (const train::Setting& setting : train::settings()) {
    const std::string name(setting.option.name);
    if (is_of_result(name) && !is_among(name, kOfCell)) config[name] = train::value_of(plan.config, setting);
  }
  const auto file = [](const std::string& path, const std::string& fingerprint) {
    if (fingerprint.empty()) return Json(nullptr);
    // A data set has no file of its own; its problem is in the configuration.
    const Json name = path.empty() ? Json(nullptr) : Json(std::filesystem::path(path).filename().string());
    return Json{{"name", name}, {"contents", fingerprint}};
  };
  Json json{{"schema", kSchema},
            {"methods", methods},
            {"ratio", plan.ratios},
            {"lr", plan.lrs},
            {"seeds", plan.seeds},
            {"tune_seeds", plan.tune_seeds},
            {"baseline", plan.methods[plan.baseline].name()},
            {"primary", plan.primary},
            {"tuned_by", plan.tuned_by},
            {"target", plan.target ? Json(*plan.target) : Json(nullptr)},
            {"budget_bytes", plan.budget_bytes ? Json(*plan.budget_bytes) : Json(nullptr)},
            {"tune_steps", plan.tune_steps ? Json(*plan.tune_steps) : Json(nullptr)},
            {"grow", plan.grow},
            {"data", file(plan.config.data, plan.data)},
            {"test_data", file(plan.config.test_data, plan.test_data)},
            {"weights", plan.dim},
            {"metric", plan.metric.empty() ? Json(nullptr) : Json(plan.metric)},
            {"config", config},
            {"environment", environment()}};
  if (!plan.init_weights.empty()) json["init_weights"] = plan.init_weights;
  return json;
}

std::string difference(const Json& before, const Json& now, std::string (*option_name)(std::string_view key)) {
  std::string all;
  const auto add = [&](const std::string& name, const Json& a, const Json& b) {
    if (a != b) all += fmt::format("{}{} was {} and is {}", all.empty() ? "" : "; ", name, brief(a), brief(b));
  };
  const auto value = [](const Json& json, const std::string& key) {
    return json.is_object() && json.contains(key) ? json.at(key) : Json(nullptr);
  };
  const auto specs = [](const Json& methods) {
    std::string text;
    for (const Json& one : methods) {
      if (one.is_object() && one.contains("spec")) {
        text += fmt::format("{}'{}'", text.empty() ? "" : " ",
                            one["spec"].is_string() ? one["spec"].get<std::string>() : "?");
      }
    }
    return text;
  };
  if (!before.is_object()) return "it is not a JSON object";
  for (const auto& [key, mine] : now.items()) {
    const Json theirs = value(before, key);
    if (key == "methods") {
      if (theirs != mine) {  // whole: they may differ at their ends
        all +=
            fmt::format("{}{} was {} and is {}", all.empty() ? "" : "; ", option_name(key), specs(theirs), specs(mine));
      }
    } else if (key == "data" || key == "test_data") {
      add(option_name(key), value(theirs, "contents"), value(mine, "contents"));
    } else if (key == "config" || key == "environment") {
      for (const auto& [name, one] : mine.items()) {
        if (name == "build") {
          if (one != value(theirs, name))
            all += (all.empty() ? "" : "; ") + std::string("the program, or a library of --load, has other code now");
        } else {
          add(key == "config" ? option_name(name) : name, value(theirs, name), one);
        }
      }
    } else {
      add(option_name(key), theirs, mine);
    }
  }
  for (const auto& [key, theirs] : before.items()) {  // what is there only if it was given
    if (!now.contains(key)) add(option_name(key), theirs, nullptr);
  }
  return all;
}

}  // namespace sparsewire::study
