#include "steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <utility>

#include "answer.h"
#include "data.h"
#include "timing.h"

namespace sparsewire::bench {
namespace {

constexpr int kWorkers = 8;  // RegTop-k's weight is 1/8

// Every sparsifier starts with the memory of a Top-k run of hundreds of steps and then does this many steps of its own
// before it is timed. The cost depends on the entries near the threshold, which are replaced within a few steps.
constexpr int kOwnSteps = 40;

const char* name_of(Case situation) {
  switch (situation) {
    case Case::steady:
      return "steady";
    case Case::noisy:
      return "noisy";
    case Case::first:
      return "first";
    case Case::jump:
      return "jump";
    case Case::equal:
      return "equal";
    case Case::sparse:
      return "sparse";
    case Case::sorted:
      return "sorted";
  }
  return "";
}

// About log-normal, with a standard deviation of 0.3.
float scale_of_batch(std::uint64_t step) {
  double normal = 0;
  auto hash = static_cast<std::uint32_t>(step);
  for (int i = 0; i < 12; ++i) {
    hash = mix(hash + 1);
    normal += uniform(hash) - 0.5;
  }
  return static_cast<float>(std::exp(0.3 * normal));
}

bool starts_warm(const StepName& name) {
  const bool has_special_memory =
      name.situation == Case::equal || name.situation == Case::sparse || name.situation == Case::sorted;
  return !has_special_memory && name.sparsifier != "dense";
}

std::string spec(const StepName& name, Bench& bench) {
  if (name.sparsifier == "dense") return "dense";
  if (name.sparsifier == "threshold") return fmt::format("threshold:lambda={:.9g}", bench.warm(name.ratio).threshold);
  const std::string more = name.sparsifier == "rtopk" ? ",r=2" : name.sparsifier == "regtopk" ? ",mu=1" : "";
  return fmt::format("{}:ratio={}{}", name.sparsifier, name.ratio, more);
}

}  // namespace

void fill_update(const SparseVector& sent, std::vector<float>& update) {
  update.resize(sent.size());
  for (std::size_t i = 0; i < sent.size(); ++i) {
    const std::uint32_t hash = mix(sent.index(i));
    const double others = (hash & 3U) == 0 ? 5.5 * uniform(mix(hash)) - 1.5 : 0.0;
    update[i] = static_cast<float>((1.0 + others) / kWorkers) * sent.values[i];
  }
}

std::string StepName::text(std::size_t n) const {
  return fmt::format("step/{}/ratio:{}/case:{}/threads:{}/n:{}", sparsifier, ratio, name_of(situation), threads, n);
}

Step::Step(Bench& bench, StepName name) : bench_(bench), name_(std::move(name)), text_(name_.text(bench.n())) {}

void Step::run(benchmark::State& state) {
  try {
    if (!std::exchange(prepared_, true)) prepare();
  } catch (const std::exception& error) {
    bench_.failures[text_] = error.what();
  }
  if (const auto failure = bench_.failures.find(text_); failure != bench_.failures.end()) {
    return state.SkipWithError(failure->second.c_str());
  }

  bench_.running(text_);
  double entries_sent = 0;
  time_steps(
      state, kStepsPerRepetition, [&] { set_up(); }, [&] { sift(); },
      [&] {
        entries_sent += static_cast<double>(sent_.size());
        tear_down();
      });
  state.counters["sent"] = benchmark::Counter(entries_sent, benchmark::Counter::kAvgIterations);
  if (name_.situation == Case::first) sifter_.reset();
  bench_.clear_progress();
}

void Step::prepare() {
  make_sifter();
  const int own_steps = name_.situation == Case::first    ? 0
                        : name_.situation == Case::steady ? kOwnSteps
                        : name_.situation == Case::noisy  ? kOwnSteps
                                                          : kStepsPerRepetition;
  for (int step = 0; step < own_steps; ++step) {
    bench_.progress(fmt::format("preparing {}", text_), step, own_steps);
    set_up();
    sift();
    tear_down();
  }
  // Twice: case:jump alternates between up and down.
  for (int step = 0; step < 2 && !bench_.failures.contains(text_); ++step) check();
  bench_.clear_progress();
}

void Step::check() {
  set_up();
  const std::vector<float> before = sifter_->memory();
  sift();
  const std::vector<float> after = sifter_->memory();
  const std::size_t k = entries(name_.ratio, bench_.n());
  const std::string wrong =
      fault({.sparsifier = name_.sparsifier,
             .k = k,
             .r = std::min(2 * k, bench_.n()),
             .threshold = name_.sparsifier == "threshold" ? bench_.warm(name_.ratio).threshold : 0,
             .before = before,
             .gradient = bench_.gradient(),
             .after = after,
             .sent = sent_,
             .sent_last_step = sent_last_step_});
  if (!wrong.empty()) bench_.failures[text_] = wrong;
  tear_down();
}

void Step::make_sifter() {
  const int ranks = name_.sparsifier == "regtopk" ? kWorkers : 1;
  sifter_.emplace(spec(name_, bench_), "ef",
                  SifterContext{.layout = bench_.n(), .ranks = ranks, .pool = bench_.pool(name_.threads)});
  if (!starts_warm(name_)) return;
  const Warm& warm = bench_.warm(name_.ratio);
  sifter_->write_memory(warm.memory);
  step_ = std::max(step_, warm.step);
}

void Step::set_up() {
  const std::uint64_t step = step_++;
  const auto change_memory = [&](auto change) {
    std::vector<float> memory = sifter_->memory();
    change(memory);
    sifter_->write_memory(memory);
  };
  switch (name_.situation) {
    case Case::steady:
      return fill_gradient(step, bench_.gradient());
    case Case::noisy:
      fill_gradient(step, bench_.gradient());
      return multiply(scale_of_batch(step), bench_.gradient());
    case Case::first:
      sifter_.reset();  // first, so that there is only one memory at a time
      sent_ = {};
      make_sifter();
      return fill_gradient(step, bench_.gradient());
    case Case::jump:
      // On the way down the memory is scaled too: otherwise its larger numbers would hide the jump for many steps.
      jump_up_ = !jump_up_;
      if (!jump_up_) change_memory([](std::span<float> memory) { multiply(0.01F, memory); });
      fill_gradient(step, bench_.gradient());
      if (jump_up_) multiply(100.0F, bench_.gradient());
      return;
    case Case::equal:
      change_memory([](std::span<float> memory) { fill_equal(0.5F, memory); });
      return fill_equal(0.5F, bench_.gradient());
    case Case::sparse:
      return fill_sparse(step, entries(name_.ratio, bench_.n()) / 2, bench_.gradient());
    case Case::sorted:
      change_memory([](std::span<float> memory) { fill_sorted(0.5F, memory); });
      return fill_sorted(0.5F, bench_.gradient());
  }
}

void Step::sift() { sifter_->sift(Gradient(bench_.gradient()), sent_); }

void Step::tear_down() {
  if (name_.sparsifier != "regtopk") return;
  fill_update(sent_, update_);
  sifter_->observe(sent_, update_);
  sent_last_step_ = sent_.indices;
}

std::vector<std::unique_ptr<Step>> register_steps(Bench& bench) {
  std::vector<StepName> names = {{"dense", 1, Case::steady, 1}};
  for (const double ratio : kRatios) {
    for (const char* sparsifier : {"threshold", "topk"}) {
      for (const int threads : {1, 2}) names.push_back({sparsifier, ratio, Case::steady, threads});
    }
    for (const char* sparsifier : {"regtopk", "rtopk", "randomk"})
      names.push_back({sparsifier, ratio, Case::steady, 1});
    for (const Case situation : {Case::noisy, Case::first, Case::jump, Case::equal, Case::sparse, Case::sorted}) {
      names.push_back({"topk", ratio, situation, 1});
    }
  }
  std::vector<std::unique_ptr<Step>> steps;
  for (const StepName& name : names) {
    Step* const step = steps.emplace_back(std::make_unique<Step>(bench, name)).get();
    benchmark::RegisterBenchmark(name.text(bench.n()).c_str(), [step](benchmark::State& state) {
      step->run(state);
    })->Unit(benchmark::kMillisecond);
  }
  return steps;
}

}  // namespace sparsewire::bench
