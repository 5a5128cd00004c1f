// Bodies of multi-rank tests: each is run by every rank, on threads (tests/unit) or under mpirun (mpi_test.cc), and
// throws CheckFailed if a check fails. Ranks compare results over the transport.
#pragma once

#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "effort.h"
#include "sparsewire/errors.h"
#include "sparsewire/sparsifier.h"
#include "sparsewire/transport.h"
#include "sparsewire/worker.h"

namespace sparsewire::bodies {

using sparsewire::kSlowBuild;

inline const std::vector<int> kRanks = !kSlowBuild    ? std::vector{1, 2, 3, 5, 8}
                                       : long_tests() ? std::vector{1, 3, 5}
                                                      : std::vector{1, 3};

using Numbers = std::vector<float>;
using Bytes = std::vector<std::byte>;

class CheckFailed : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

inline void require(bool holds, const std::string& what) {
  if (!holds) throw CheckFailed(what);
}

template <class A, class B>
void require_equal(const A& expected, const B& actual, const std::string& what) {
  if (!(expected == actual)) {
    throw CheckFailed(what + ": " + std::to_string(actual) + " instead of " + std::to_string(expected));
  }
}

// ---- Plans ----

// Writes the gradient of a rank and a step.
using Fill = void (*)(std::span<float>, std::uint64_t seed, int rank, std::uint64_t step);
inline void fill_gradient(std::span<float> gradient, std::uint64_t seed, int rank, std::uint64_t step);

// The options of all workers, and their gradients.
struct Plan {
  WorkerConfig config;
  Layout layout = 1001;
  std::vector<double> weights;  // of the first ranks; the others have weight 1
  std::uint64_t seed = 1;       // of the gradients
  Fill fill = fill_gradient;

  WorkerConfig config_of(const Transport& transport) const {
    WorkerConfig mine = config;
    const auto rank = static_cast<std::size_t>(transport.rank());
    mine.weight = rank < weights.size() ? weights[rank] : 1.0;
    return mine;
  }
  // The normalised weights: shares of their sum, as floats.
  std::vector<float> shares(int ranks) const {
    std::vector<double> all(static_cast<std::size_t>(ranks), 1.0);
    std::copy_n(weights.begin(), std::min(weights.size(), all.size()), all.begin());
    double sum = 0;
    for (const double weight : all) sum += weight;
    std::vector<float> shares;
    for (const double weight : all) shares.push_back(static_cast<float>(weight / sum));
    return shares;
  }
  std::string name() const {
    return config.sparsifier + " " + config.feedback + " over " + config.exchange + " " + config.codec +
           (config.downlink.empty() ? "" : " downlink " + config.downlink) + " seed " + std::to_string(seed);
  }
};

// An exchange with or without a downlink.
struct ExchangeCase {
  std::string exchange;
  bool downlink = false;

  std::string name() const { return exchange + (downlink ? "_with_downlink" : ""); }
};

inline std::vector<ExchangeCase> every_exchange_case() {
  std::vector<ExchangeCase> cases;
  for (const ExchangeChoice& choice : exchange_choices()) {
    cases.push_back({std::string(choice.name), false});
    if (choice.takes_downlink && choice.name != "auto") cases.push_back({std::string(choice.name), true});
  }
  return cases;
}

inline Plan plan_of(const std::string& sparsifier, const ExchangeCase& setup, const std::string& codec = "auto") {
  Plan plan;
  plan.config.sparsifier = sparsifier;
  plan.config.exchange = setup.exchange;
  plan.config.codec = codec;
  if (setup.downlink) plan.config.downlink = sparsifier;
  plan.config.seed = 77;
  plan.weights = {1, 0.5, 2.25, 1, 3};
  return plan;
}

// ---- Gradients ----

inline std::uint64_t mixed(std::uint64_t number) {  // SplitMix64
  number += 0x9E3779B97F4A7C15U;
  number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9U;
  number = (number ^ number >> 27) * 0x94D049BB133111EBU;
  return number ^ number >> 31;
}

// Some entries are large, some exactly zero, some drift. Different for every rank and step.
inline void fill_gradient(std::span<float> gradient, std::uint64_t seed, int rank, std::uint64_t step) {
  const std::uint64_t key = mixed(mixed(mixed(seed) + static_cast<std::uint64_t>(rank)) + step);
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const std::uint64_t bits = mixed(key + i);
    const float uniform = static_cast<float>(static_cast<std::int32_t>(bits)) * 0x1p-31F;  // [-1, 1)
    const float scale = static_cast<float>(1U << (mixed(i) & 7U)) * 0x1p-4F;
    gradient[i] = (bits >> 60) == 0 ? 0.0F : scale * (uniform + 0.1F);
  }
}

// Multiples of 1/64, so that hundreds of them add without rounding: a step that is taken back leaves the same bits.
inline void fill_exact_gradient(std::span<float> gradient, std::uint64_t seed, int rank, std::uint64_t step) {
  fill_gradient(gradient, seed, rank, step);
  for (float& number : gradient) number = std::round(number * 64) / 64;
}

// Multiples of 1/64. A threshold of 12 sends few entries in two of four steps, and all entries in the other two.
inline void fill_swinging_gradient(std::span<float> gradient, std::uint64_t seed, int rank, std::uint64_t step) {
  fill_exact_gradient(gradient, seed, rank, step);
  if (step % 4 < 2) return;
  for (float& number : gradient) number = (number == 0 ? 1 : number) * 1024;
}

// ---- Comparing ranks ----

template <class T>
std::vector<std::vector<T>> from_all(Transport& transport, std::span<const T> mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<Bytes> bytes;
  transport.all_gather(std::as_bytes(mine), bytes);
  std::vector<std::vector<T>> all;
  for (const Bytes& one : bytes) {
    all.emplace_back(one.size() / sizeof(T));
    if (!one.empty()) std::memcpy(all.back().data(), one.data(), one.size());
  }
  return all;
}

template <class T>
void require_same_everywhere(Transport& transport, std::span<const T> mine, const std::string& what) {
  const auto all = from_all(transport, mine);
  for (std::size_t r = 1; r < all.size(); ++r) {
    require(all[r].size() == all[0].size() &&
                (all[0].empty() || std::memcmp(all[r].data(), all[0].data(), all[0].size() * sizeof(T)) == 0),
            what + ": rank " + std::to_string(r) + " differs from rank 0 of " + std::to_string(all.size()));
  }
}

// Adds the bits of the numbers to an FNV hash.
inline void digest(std::uint64_t& sum, std::span<const float> numbers) {
  for (const float number : numbers) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &number, sizeof bits);
    sum = (sum ^ bits) * 0x100000001B3U;
  }
}

// ---- Checks ----

// A worker with its gradient, update and weights.
class Runner {
 public:
  Runner(const Plan& plan, Transport& transport)
      : plan_(plan),
        transport_(transport),
        gradient(plan.layout.dim()),
        update(plan.layout.dim()),
        weights(plan.layout.dim()),
        worker(plan.config_of(transport), plan.layout, transport) {}

  // One step with the gradient of this rank and `number`.
  const StepStats& step(std::uint64_t number) {
    plan_.fill(gradient, plan_.seed, transport_.rank(), number);
    return step();
  }
  // One step with `gradient` as it is.
  const StepStats& step() {
    worker.step(gradient);
    worker.write_update(update);
    const StepStats& stats = worker.stats();
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] -= 0.125F * update[i];
    digest(sum, update);
    return stats;
  }

  std::string at(std::uint64_t number) const {
    return plan_.name() + " on " + std::to_string(transport_.size()) + " ranks, step " + std::to_string(number);
  }

 private:
  const Plan& plan_;
  Transport& transport_;

 public:
  Numbers gradient;
  Numbers update;
  Numbers weights;
  std::uint64_t sum = 0xCBF29CE484222325U;  // hash of all updates
  Worker worker;
};

// All ranks get the same updates. Returns the hash of all updates.
inline std::uint64_t replicas_stay_equal(Transport& transport, const Plan& plan, std::uint64_t steps) {
  Runner run(plan, transport);
  for (std::uint64_t t = 0; t < steps; ++t) require_equal(t + 1, run.step(t).step, run.at(t) + ": steps done");
  require_same_everywhere(transport, std::span<const std::uint64_t>(&run.sum, 1), run.at(steps) + ": the updates");
  require_same_everywhere(transport, std::span<const float>(run.weights), run.at(steps) + ": the weights");
  bool has_moved = false;
  for (const float weight : run.weights) has_moved = has_moved || weight != 0;
  require(has_moved, run.at(steps) + ": nothing arrived");
  return run.sum;
}

// What all workers and servers have not sent yet: sum_i w_i e_i + E. The same on every rank.
inline std::vector<double> owed(Transport& transport, const Plan& plan, const Worker& worker) {
  std::vector<double> mine(plan.layout.dim());
  worker.add_server_memory(mine);
  const auto share = static_cast<double>(plan.shares(transport.size())[static_cast<std::size_t>(transport.rank())]);
  const std::vector<float> memory = worker.memory();
  for (std::size_t i = 0; i < mine.size(); ++i) mine[i] += share * static_cast<double>(memory[i]);
  std::vector<double> sum(mine.size());
  for (const auto& one : from_all(transport, std::span<const double>(mine))) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += one[i];
  }
  return sum;
}

// Each part of the gradients is in the updates or in a memory: sum_t update_t + sum_i w_i e_i + E equals
// sum_t sum_i w_i g_i(t), to rounding.
inline void nothing_is_lost(Transport& transport, const Plan& plan, std::uint64_t steps) {
  Runner run(plan, transport);
  const std::vector<float> shares = plan.shares(transport.size());
  std::vector<double> given(plan.layout.dim());
  std::vector<double> arrived(plan.layout.dim());
  std::vector<double> size(plan.layout.dim());  // the sum of the magnitudes, for the tolerance
  Numbers theirs(plan.layout.dim());
  for (std::uint64_t t = 0; t < steps; ++t) {
    run.step(t);
    for (int r = 0; r < transport.size(); ++r) {
      plan.fill(theirs, plan.seed, r, t);
      const auto share = static_cast<double>(shares[static_cast<std::size_t>(r)]);
      for (std::size_t i = 0; i < given.size(); ++i) {
        given[i] += share * static_cast<double>(theirs[i]);
        size[i] += share * std::fabs(static_cast<double>(theirs[i]));
      }
    }
    for (std::size_t i = 0; i < arrived.size(); ++i) arrived[i] += static_cast<double>(run.update[i]);
  }
  const std::vector<double> left = owed(transport, plan, run.worker);
  for (std::size_t i = 0; i < given.size(); ++i) {
    require(std::fabs(left[i] + arrived[i] - given[i]) <= 0x1p-22 * static_cast<double>(steps + 2) * (size[i] + 1e-3),
            run.at(steps) + ": of entry " + std::to_string(i) + ", " + std::to_string(given[i]) + " was given, " +
                std::to_string(arrived[i]) + " arrived and " + std::to_string(left[i]) + " is left");
  }
}

// A BadGradient in a form that ranks can compare.
struct Failure {
  std::int64_t rank = -1;
  std::uint64_t step = 0;
  std::uint64_t index = 0;
  std::array<char, 200> text{};
};

inline std::optional<Failure> failure_of(Runner& run) {
  try {
    run.step();
  } catch (const BadGradient& error) {
    Failure failure{error.rank(), error.step(), error.index(), {}};
    std::strncpy(failure.text.data(), error.what(), failure.text.size() - 1);
    return failure;
  }
  return std::nullopt;
}

// All ranks throw the same BadGradient and take the step back. Returns it.
inline Failure all_fail(Transport& transport, const Plan& plan, Runner& run, std::uint64_t number) {
  const Numbers memory = run.worker.memory();
  const std::vector<double> owed_before = owed(transport, plan, run.worker);
  std::vector<double> served(plan.layout.dim());
  run.worker.add_server_memory(served);
  const std::uint64_t steps = run.worker.stats().step;
  const std::optional<Failure> failure = failure_of(run);
  require(failure.has_value(), run.at(number) + ": rank " + std::to_string(transport.rank()) + " did not throw");
  require_same_everywhere(transport, std::span<const Failure>(&*failure, 1), run.at(number) + ": the errors");
  require_equal(steps, failure->step, run.at(number) + ": the step that failed");
  std::vector<double> served_after(plan.layout.dim());
  run.worker.add_server_memory(served_after);
  const std::vector<float> after = run.worker.memory();
  for (std::size_t i = 0; i < memory.size(); ++i) {
    const double came = std::isfinite(run.gradient[i]) ? std::fabs(double{run.gradient[i]}) : 0;
    const double before = double{memory[i]};
    require(std::fabs(double{after[i]} - before) <= 0x1p-22 * (std::fabs(before) + came) + 1e-40,
            run.at(number) + ": the memory at " + std::to_string(i) + " was " + std::to_string(before) + " and is " +
                std::to_string(after[i]));
    // What a server received is not known here: 100 is more than any mean in these tests.
    require(std::fabs(served_after[i] - served[i]) <= 0x1p-22 * (std::fabs(served[i]) + 100 + came),
            run.at(number) + ": the server's memory at " + std::to_string(i) + " was " + std::to_string(served[i]) +
                " and is " + std::to_string(served_after[i]));
  }
  return *failure;
}

struct BadEntry {
  int rank;
  std::uint64_t index;
  float value;
};

// One step of a run has these entries in its gradients: all ranks throw the same error, and later steps give the same
// bits as without that step. For gradients that add without rounding.
inline void a_bad_gradient_fails_everywhere(Transport& transport, const Plan& plan, std::span<const BadEntry> bad) {
  Runner run(plan, transport);
  Runner twin(plan, transport);  // has no bad step
  constexpr std::uint64_t kBefore = 4;
  for (std::uint64_t t = 0; t < kBefore; ++t) run.step(t), twin.step(t);
  plan.fill(run.gradient, plan.seed, transport.rank(), kBefore);
  const BadEntry* first = &bad[0];
  for (const BadEntry& entry : bad) {
    if (entry.rank == transport.rank()) run.gradient[entry.index] = entry.value;
    if (entry.rank < first->rank) first = &entry;
  }
  const Failure failure = all_fail(transport, plan, run, kBefore);
  require_equal(first->rank, failure.rank, run.at(kBefore) + ": the rank that failed");
  require_equal(first->index, failure.index, run.at(kBefore) + ": where it failed");
  for (std::uint64_t t = kBefore; t < 3 * kBefore; ++t) {
    require_equal(t + 1, run.step(t).step, run.at(t) + ": steps done");
    twin.step(t);
  }
  require_same_everywhere(transport, std::span<const std::uint64_t>(&run.sum, 1),
                          run.at(3 * kBefore) + ": after a bad gradient, updates");
  require_equal(twin.sum, run.sum, run.at(3 * kBefore) + ": updates after a bad gradient");
}

}  // namespace sparsewire::bodies
