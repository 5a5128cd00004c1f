#include "threads.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <regex>

#include "data.h"
#include "floor.h"
#include "sharded.h"
#include "sparsewire/sifter.h"
#include "sparsewire/support/pages.h"
#include "steps.h"

namespace sparsewire::bench {
namespace {

constexpr int kOwnSteps = 6;    // of a sparsifier, after those that made the memory
constexpr int kTimedSteps = 7;  // of which the median counts
constexpr double kNone = 1e9;   // no limit, for reference
constexpr double kShardedLimit = 0.25;
constexpr double kLeastShare = 0.8;  // of what `memory += gradient` gains by threads

struct Method {
  const char* name;
  const char* more;                   // keys of its spec besides the ratio
  double limits[std::size(kRatios)];  // times memory += gradient; 0: it has to gain kLeastShare
};
constexpr Method kMethods[] = {{"topk", "", {1.4, 1.9}},         {"threshold", "", {1.4, 1.9}},
                               {"regtopk", ",mu=1", {1.4, 2.2}}, {"rtopk", ",r=2", {1.6, 2.8}},
                               {"randomk", "", {kNone, kNone}},  {"topk", ",chunk=4096", {0, 0}}};

double milliseconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> numbers) {
  std::sort(numbers.begin(), numbers.end());
  return numbers[numbers.size() / 2];
}

// A Top-k that ran for many steps, and its k-th magnitude.
struct Warmed {
  Sifter sifter;
  SparseVector sent;  // in the last step
  float threshold = 0;
};

Warmed warm_up(Bench& bench, double ratio, Pool* pool) {
  Warmed warm{Sifter(fmt::format("topk:ratio={}", ratio), "ef", {.layout = bench.n(), .pool = pool})};
  const std::string what = fmt::format("warming topk {}", ratio);
  for (int step = 0; step < bench.warmup_steps(); ++step) {
    bench.progress(what, step, bench.warmup_steps());
    fill_gradient(warm.sifter.step(), bench.gradient(), pool);
    warm.sifter.sift(Gradient(bench.gradient()), warm.sent);
  }
  bench.clear_progress();
  warm.threshold = smallest_magnitude(warm.sent.values);
  return warm;
}

struct Measured {
  double step = 0;     // milliseconds
  double add = 0;      // memory += gradient
  double observe = 0;  // what RegTop-k does after a step
  SparseVector sent;   // in the last step
};

Measured measure(Bench& bench, const std::string& spec, const Sifter& warm, Pool* pool, Pool* all) {
  const bool observes = spec.starts_with("regtopk");
  Sifter sifter(spec, "ef", {.layout = bench.n(), .ranks = 8, .pool = pool});
  sifter.continue_from(warm);
  Measured times;
  std::vector<float> update;
  std::vector<double> steps;
  std::vector<double> adds;
  std::vector<double> observed;
  for (int step = 0; step < kOwnSteps + kTimedSteps; ++step) {
    fill_gradient(sifter.step(), bench.gradient(), all);
    steps.push_back(milliseconds_of([&] { sifter.sift(Gradient(bench.gradient()), times.sent); }));
    if (observes) {
      fill_update(times.sent, update);
      observed.push_back(milliseconds_of([&] { sifter.observe(times.sent, update); }));
    }
    if (step < kOwnSteps) continue;
    adds.push_back(milliseconds_of([&] { add_on(pool, bench.floor_memory(), bench.gradient()); }));
  }
  const auto timed = [](const std::vector<double>& all_steps) {
    return median({all_steps.end() - kTimedSteps, all_steps.end()});
  };
  times.step = timed(steps);
  times.add = median(adds);
  if (observes) times.observe = timed(observed);
  return times;
}

std::string spec_of(const Method& method, double ratio, float threshold) {
  if (std::string_view(method.name) == "threshold") return fmt::format("threshold:lambda={:.9g}", threshold);
  return fmt::format("{}:ratio={}{}", method.name, ratio, method.more);
}

// Whether --benchmark_filter selects a row of the table.
bool is_selected(const std::string& label) {
  const std::string filter = benchmark::GetBenchmarkFilter();
  return filter.empty() || std::regex_search(label, std::regex(filter));
}

double time_of_add(Bench& bench, Pool* pool) {
  std::vector<double> times;
  for (int i = 0; i < kTimedSteps; ++i) {
    times.push_back(milliseconds_of([&] { add_on(pool, bench.floor_memory(), bench.gradient()); }));
  }
  return median(times);
}

// What one of kShardedRanks ranks does with its entries in a step: `time` of one number of threads, in milliseconds.
// A limit is for as many threads as ranks.
void add_sharded_row(Bench& bench, const std::string& label, double limit, const std::vector<int>& threads,
                     const std::function<std::optional<double>(Pool*)>& time_of, std::vector<double>& add_times,
                     Cells& cells) {
  std::vector<std::string> row = {label};
  if (!is_selected(row[0])) return;
  std::string outcome;
  const bool has_limit = limit != kNone;
  for (std::size_t t = 0; t < threads.size(); ++t) {
    const std::optional<double> time = time_of(bench.pool(threads[t]));
    if (!time) return;
    const double add = time_of_add(bench, bench.pool(threads[t]));
    add_times[t] = std::min(add_times[t], add);
    row.push_back(fmt::format("{:.2f}", *time / add));
    if (has_limit && threads[t] == kShardedRanks) outcome = held(*time / add <= limit);
  }
  row.push_back(has_limit ? fmt::format("{:.2f} ({} threads)", limit, kShardedRanks) : "");
  row.push_back(outcome);
  cells.push_back(row);
}

}  // namespace

std::string threads_table(Bench& bench, const std::vector<int>& threads, Form form) {
  Pool* const all = bench.pool(*std::max_element(threads.begin(), threads.end()));
  Cells cells = {{"times memory += gradient, threads:"}};
  for (const int count : threads) cells[0].push_back(std::to_string(count));
  cells[0].insert(cells[0].end(), {"at most", ""});
  constexpr double kNotTimed = 1e300;
  std::vector<double> add_times(threads.size(), kNotTimed);
  for (std::size_t r = 0; r < std::size(kRatios); ++r) {
    const double ratio = kRatios[r];
    const Warmed warm = warm_up(bench, ratio, all);
    for (const Method& method : kMethods) {
      const std::string spec = spec_of(method, ratio, warm.threshold);
      std::vector<std::string> row = {fmt::format("{}{}, {:g} %", method.name, method.more, 100 * ratio)};
      if (!is_selected(row[0])) continue;
      std::vector<std::string> observe_row = {fmt::format("  its observe(), {:g} %", 100 * ratio)};
      const double limit = method.limits[r];
      bool is_held = true;
      std::optional<Measured> first;
      for (std::size_t t = 0; t < threads.size(); ++t) {
        bench.progress(fmt::format("timing {} on {} threads", spec, threads[t]), 0, kOwnSteps + kTimedSteps);
        const Measured times = measure(bench, spec, warm.sifter, bench.pool(threads[t]), all);
        if (!first) first = times;
        if (times.sent != first->sent) bench.failures[spec] = "other entries on another number of threads";
        add_times[t] = std::min(add_times[t], times.add);
        const double share = first->step / times.step / (first->add / times.add);
        is_held = is_held && (limit > 0 ? times.step / times.add <= limit : share >= kLeastShare);
        row.push_back(limit > 0 ? fmt::format("{:.2f}", times.step / times.add)
                                : fmt::format("{:.2f} (gains {:.2f})", times.step / times.add, share));
        observe_row.push_back(fmt::format("{:.3f}", times.observe / times.add));
      }
      row.push_back(limit == kNone ? ""
                    : limit > 0    ? fmt::format("{:.1f}", limit)
                                   : fmt::format("gains {:.1f}", kLeastShare));
      row.push_back(limit == kNone ? "" : held(is_held));
      cells.push_back(row);
      observe_row.insert(observe_row.end(), {"", ""});
      if (first->observe > 0) cells.push_back(observe_row);
    }
    const auto sharded = [&](const char* what) {
      return fmt::format("{}, sharded of {}, {:g} %", what, kShardedRanks, 100 * ratio);
    };
    add_sharded_row(
        bench, sharded("encode + decode"), ratio == kRatios[1] ? kShardedLimit : kNone, threads,
        [&](Pool* pool) { return sharded_codec_time(warm.sent, ratio, pool); }, add_times, cells);
    add_sharded_row(
        bench, sharded("merge"), kNone, threads, [&](Pool* pool) { return sharded_merge_time(warm.sent, pool); },
        add_times, cells);
  }
  std::vector<std::string> adds = {"memory += gradient, ms"};
  for (const double time : add_times) adds.push_back(time < kNotTimed ? fmt::format("{:.2f}", time) : "-");
  adds.insert(adds.end(), {"", ""});
  cells.insert(cells.begin() + 1, adds);
  return grid(cells, form);
}

}  // namespace sparsewire::bench
