#include "table.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "codecs.h"
#include "floor.h"
#include "kernels/simd.h"
#include "local.h"
#include "steps.h"

namespace sparsewire::bench {
namespace {

struct Target {
  const char* label;
  StepName step;
  double times_add;  // the largest allowed multiple of floor/add; 0: no limit, for reference
};

const std::vector<Target>& targets() {
  static const std::vector<Target> all = {
      {"threshold, 0.1 %", {"threshold", 0.001}, 1.1},
      {"threshold, 1 %", {"threshold", 0.01}, 1.25},
      {"topk, 0.1 %", {"topk", 0.001}, 1.25},
      {"topk, 1 %", {"topk", 0.01}, 1.5},
      {"regtopk, 0.1 %", {"regtopk", 0.001}, 1.6},
      {"rtopk (r = 2k), 0.1 %", {"rtopk", 0.001}, 1.6},
      {"randomk, 0.1 %", {"randomk", 0.001}, 1.2},
      {"randomk, 1 %", {"randomk", 0.01}, 1.5},
      {"topk, scale varies by a third, 0.1 %", {"topk", 0.001, Case::noisy}, 0},
      {"topk, scale varies by a third, 1 %", {"topk", 0.01, Case::noisy}, 0},
      {"topk, first step, 0.1 %", {"topk", 0.001, Case::first}, 3},
      {"topk, first step, 1 %", {"topk", 0.01, Case::first}, 3},
      {"topk, scale jumps 100-fold, 0.1 %", {"topk", 0.001, Case::jump}, 6},
      {"topk, scale jumps 100-fold, 1 %", {"topk", 0.01, Case::jump}, 6},
      {"topk, all values equal, 0.1 %", {"topk", 0.001, Case::equal}, 6},
      {"topk, all values equal, 1 %", {"topk", 0.01, Case::equal}, 6},
      {"topk, fewer than k non-zeros, 0.1 %", {"topk", 0.001, Case::sparse}, 6},
      {"topk, fewer than k non-zeros, 1 %", {"topk", 0.01, Case::sparse}, 6},
      {"topk, sorted, 0.1 %", {"topk", 0.001, Case::sorted}, 6},
      {"topk, sorted, 1 %", {"topk", 0.01, Case::sorted}, 6},
      {"dense", {"dense", 1}, 0},
  };
  return all;
}

constexpr double kLeastSpeedUp = 1.5;
constexpr double kAlmost = 0.95;  // of the speed-up of `memory += gradient`: within the noise

struct Pair {
  std::string label;
  std::string one;
  std::string two;
  bool has_target;
};

std::vector<Pair> thread_pairs(std::size_t n) {
  std::vector<Pair> pairs = {{"memory += gradient", floor_add_name(1), floor_add_name(2), false}};
  for (const Target& target : targets()) {
    const bool is_timed_twice = target.step.sparsifier == "topk" || target.step.sparsifier == "threshold";
    if (!is_timed_twice || target.step.situation != Case::steady) continue;
    StepName two = target.step;
    two.threads = 2;
    pairs.push_back({target.label, target.step.text(n), two.text(n), true});
  }
  return pairs;
}

Cells floor_cells(const Times& times) {
  Cells cells = {{"floors and yardsticks", "measured, ms", "times memory += gradient"}};
  const std::optional<double> add = times.median(floor_add_name(1));
  const auto line = [&](const std::string& label, const std::string& name) {
    const std::optional<double> time = times.median(name);
    if (time && add) cells.push_back({label, fmt::format("{:.2f}", *time), fmt::format("{:.2f}", *time / *add)});
  };
  line("memory += gradient", floor_add_name(1));
  line("memcpy", floor_memcpy_name(1));
  for (const double ratio : kRatios) {
    line(fmt::format("std::nth_element alone, {:g} %", 100 * ratio), nth_element_name(ratio));
  }
  return cells;
}

Cells step_cells(const Times& times, const Bench& bench) {
  Cells cells = {{"step", "at most", "measured, ms", "times memory += gradient", ""}};
  const std::optional<double> add = times.median(floor_add_name(1));
  for (const Target& target : targets()) {
    const std::string limit = target.times_add > 0 ? fmt::format("{:.2f}", target.times_add) : "";
    const std::string name = target.step.text(bench.n());
    if (const auto failure = bench.failures.find(name); failure != bench.failures.end()) {
      cells.push_back({target.label, limit, "-", "-", "WRONG ANSWER: " + failure->second});
    } else if (const std::optional<double> time = times.median(name); time && add) {
      const double ratio = *time / *add;
      cells.push_back({target.label, limit, fmt::format("{:.2f}", *time), fmt::format("{:.2f}", ratio),
                       target.times_add > 0 ? held(ratio <= target.times_add) : ""});
    }
  }
  return cells;
}

struct CodecTarget {
  std::string spec;
  double ratio;
  double times_add;  // the largest allowed multiple of floor/add; 0: no limit, for reference
};

std::vector<CodecTarget> codec_targets() {
  std::vector<CodecTarget> targets = {{"golomb:values=f32", 0.001, 0}, {"golomb:values=f32", 0.01, 0.25}};
  targets.push_back({"golomb:values=bf16", 0.01, 0});
  for (const CodecInfo& format : value_formats()) {
    targets.push_back({fmt::format("auto:values={}", format.name), 0.01, format.name == "bf16" ? 0.35 : 0});
  }
  return targets;
}

Cells codec_cells(const Times& times, const Bench& bench) {
  Cells cells = {{"codec", "encode, ms", "decode, ms", "both, times memory += gradient", "at most", ""}};
  const std::optional<double> add = times.median(floor_add_name(1));
  for (const CodecTarget& target : codec_targets()) {
    const std::string label = fmt::format("{}, {:g} %", target.spec, 100 * target.ratio);
    const std::string encode_name = codec_name("encode", target.spec, target.ratio, bench.n());
    const std::optional<double> encode = times.median(encode_name);
    const std::optional<double> decode = times.median(codec_name("decode", target.spec, target.ratio, bench.n()));
    if (const auto failure = bench.failures.find(encode_name); failure != bench.failures.end()) {
      cells.push_back({label, "-", "-", "-", "", "WRONG ANSWER: " + failure->second});
    } else if (encode && decode && add) {
      const double ratio = (*encode + *decode) / *add;
      const bool has_target = target.times_add > 0;
      cells.push_back({label, fmt::format("{:.2f}", *encode), fmt::format("{:.2f}", *decode),
                       fmt::format("{:.3f}", ratio), has_target ? fmt::format("{:.2f}", target.times_add) : "",
                       has_target ? held(ratio <= target.times_add) : ""});
    }
  }
  return cells;
}

struct LocalTarget {
  double ratio;
  double times_add;  // the largest allowed multiple of floor/add
};
constexpr LocalTarget kLocalTargets[] = {{0.001, 1.6}, {0.01, 3.0}};

Cells local_cells(const Times& times, const Bench& bench) {
  Cells cells = {{"one of 4 ranks, sharded both ways", "at most", "measured, ms", "times memory += gradient", ""}};
  const std::optional<double> add = times.median(floor_add_name(1));
  for (const LocalTarget& target : kLocalTargets) {
    const std::string name = local_name(target.ratio, bench.n());
    const std::string label = fmt::format("{:g} %", 100 * target.ratio);
    const std::string limit = fmt::format("{:.2f}", target.times_add);
    const std::optional<double> time = times.median(name);
    if (const auto failure = bench.failures.find(name); failure != bench.failures.end()) {
      cells.push_back({label, limit, "-", "-", "WRONG ANSWER: " + failure->second});
    } else if (time && add) {
      const double ratio = *time / *add;
      cells.push_back(
          {label, limit, fmt::format("{:.2f}", *time), fmt::format("{:.2f}", ratio), held(ratio <= target.times_add)});
      for (const char* const stage : kLocalStages) {
        const double part = times.median(name, stage).value_or(0);
        cells.push_back({fmt::format("  {}, {}", label, stage), "", fmt::format("{:.2f}", part),
                         fmt::format("{:.2f}", part / *add), ""});
      }
    }
  }
  return cells;
}

// A step cannot gain more from a second thread than `memory += gradient` does, which is limited by memory bandwidth.
Cells thread_cells(const Times& times, std::size_t n) {
  Cells cells = {{"with 2 threads", "1 thread, ms", "2 threads, ms", "times faster", "at least", ""}};
  double limit = 0;
  for (const Pair& pair : thread_pairs(n)) {
    const std::optional<double> one = times.median(pair.one);
    const std::optional<double> two = times.median(pair.two);
    if (!one || !two) continue;
    const double gain = *one / *two;
    if (!pair.has_target) limit = gain;
    const char* const outcome = gain >= kLeastSpeedUp     ? "held"
                                : gain >= kAlmost * limit ? "as far as the memory allows"
                                                          : "MISSED";
    cells.push_back({pair.label, fmt::format("{:.2f}", *one), fmt::format("{:.2f}", *two), fmt::format("{:.2f}", gain),
                     pair.has_target ? fmt::format("{:.2f}", kLeastSpeedUp) : "", pair.has_target ? outcome : ""});
  }
  return cells;
}

std::string first_line_of(const char* file, const std::string& key) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(key)) continue;
    const std::size_t colon = line.find(": ");
    return key.empty() || colon == std::string::npos ? line : line.substr(colon + 2);
  }
  return "unknown";
}

std::string machine(const Times& times, const Bench& bench) {
  return fmt::format(
      "{}; SIMD level {}; transparent huge pages: {}\n"
      "{} floats, medians of {} randomly interleaved repetitions; memories carried over {} steps of error feedback\n\n",
      first_line_of("/proc/cpuinfo", "model name"), kernels::simd_level(),
      first_line_of("/sys/kernel/mm/transparent_hugepage/enabled", ""), bench.n(), times.repetitions(),
      bench.warmup_steps());
}

}  // namespace

bool Times::ReportContext(const Context& /*context*/) { return true; }

void Times::ReportRuns(const std::vector<Run>& runs) {
  for (const Run& run : runs) {
    std::vector<double>& samples = samples_[run.run_name.str()];
    const double milliseconds = run.GetAdjustedRealTime() * 1e3 / benchmark::GetTimeUnitMultiplier(run.time_unit);
    if (run.run_type == Run::RT_Iteration) {
      if (run.iterations == 0) continue;
      samples.push_back(milliseconds);
      for (const auto& [counter, value] : run.counters) samples_[run.run_name.str() + "#" + counter].push_back(value);
    } else if (samples.empty() && run.aggregate_name == "median") {  // with --benchmark_report_aggregates_only
      samples.push_back(milliseconds);
    }
  }
}

std::optional<double> Times::median(const std::string& name) const {
  const auto found = samples_.find(name);
  if (found == samples_.end() || found->second.empty()) return std::nullopt;
  std::vector<double> sorted = found->second;
  std::sort(sorted.begin(), sorted.end());
  const std::size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

std::optional<double> Times::median(const std::string& name, const std::string& counter) const {
  return median(name + "#" + counter);
}

std::size_t Times::repetitions() const {
  std::size_t most = 0;
  for (const auto& [name, samples] : samples_) most = std::max(most, samples.size());
  return most;
}

std::string table_filter(std::size_t n) {
  std::string names = floor_memcpy_name(1);
  for (const double ratio : kRatios) names += "|" + nth_element_name(ratio);
  for (const Target& target : targets()) names += "|" + target.step.text(n);
  for (const CodecTarget& target : codec_targets()) {
    names += "|" + codec_name("encode", target.spec, target.ratio, n) + "|" +
             codec_name("decode", target.spec, target.ratio, n);
  }
  for (const LocalTarget& target : kLocalTargets) names += "|" + local_name(target.ratio, n);
  for (const Pair& pair : thread_pairs(n)) names += "|" + pair.one + "|" + pair.two;
  return "^(" + names + ")$";
}

std::string table(const Times& times, const Bench& bench, Form form) {
  return machine(times, bench) + grid(floor_cells(times), form) + grid(step_cells(times, bench), form) +
         grid(codec_cells(times, bench), form) + grid(local_cells(times, bench), form) +
         grid(thread_cells(times, bench.n()), form);
}

}  // namespace sparsewire::bench
