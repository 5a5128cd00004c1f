// Three workers with different minima: how compressing the uplink, the downlink, or both changes the final loss.
//
// Zou, De Sterck, Liu, Downlink compression improves TopK sparsification, 2022: K = Kd = 1 of 100 entries, lr 0.01,
// 1000 steps, the mean of F over the last 200. Both memories hold lr*gradient. Here also with other K and learning
// rates, because they decide which way is lower.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "reproduce/reproduction.h"
#include "reproduce/rounds.h"
#include "reproduce/table.h"
#include "sparsewire/errors.h"

namespace sparsewire::reproduce {
namespace {

constexpr int kWorkers = 3;
constexpr std::uint64_t kRounds = 1000;      // a run with fewer is not judged
constexpr double kOptimum = 50.0 * 122 / 9;  // 100/2 times the variance of 1, 5, 10: 677.78
constexpr double kNearOptimum = 0.01;
constexpr double kInf = std::numeric_limits<double>::infinity();

constexpr std::uint64_t kKept[] = {1, 2, 5, 10};
// The authors' 0.01, and about three times less and more. At 0.003 not even dense training arrives in 1000 steps; at
// 0.03 Top-1 is about to become unstable, since an entry waits for about 100 steps and is then moved 100*lr of its way.
constexpr double kRates[] = {0.003, 0.01, 0.03};
constexpr std::uint64_t kAuthorsK = 1;
constexpr double kAuthorsRate = 0.01;

enum class Method : std::uint8_t { dense, uplink, bidirectional, downlink };
constexpr Method kMethods[] = {Method::dense, Method::uplink, Method::bidirectional, Method::downlink};
constexpr const char* kNames[] = {"dense", "uplink", "bidirectional", "downlink"};
// From our rerun of the authors' script, a re-implementation with other random numbers; dense was not run.
constexpr const char* kRerun[] = {"-", "700.3", "694.3", "677.78"};

const char* name_of(Method method) { return kNames[static_cast<std::size_t>(method)]; }
bool compresses_uplink(Method method) { return method == Method::uplink || method == Method::bidirectional; }
bool compresses_downlink(Method method) { return method == Method::downlink || method == Method::bidirectional; }

// The mean of F over the last fifth of the rounds; infinite if the training diverged beyond floats.
double final_loss(Method method, std::uint64_t k, double lr, std::uint64_t rounds, std::uint64_t seed) {
  const auto problem = train::make_problem("downlink_toy", {.workers = kWorkers, .seed = seed, .data = {}});
  auto& precise = dynamic_cast<train::PreciseProblem&>(*problem);
  const std::string topk = fmt::format("topk:k={}", k);
  const Plan plan{.worker = {.sparsifier = compresses_uplink(method) ? topk : "dense",
                             .feedback = "ef:scale=lr",
                             .exchange = "server",
                             .downlink = compresses_downlink(method) ? topk : "",
                             .seed = seed},
                  .workers = kWorkers,
                  .rounds = rounds,
                  .lr = lr};
  const std::uint64_t last = std::max<std::uint64_t>(1, rounds / 5);
  double sum = 0;
  try {
    run(plan, precise, [&](const Round& round) {
      if (round.step + last > rounds) sum += precise.evaluate_at(round.weights).loss;
    });
  } catch (const BadGradient&) {
    return kInf;
  }
  return sum / static_cast<double>(last);
}

class Sweep {
 public:
  Sweep(const Options& options, const Progress& progress)
      : rounds_(options.rounds.value_or(kRounds)),
        first_(options.seed.value_or(0)),
        seeds_(options.seeds.value_or(options.by_size<std::uint64_t>(3, 10, 20))) {
    const std::size_t parts = std::size(kKept) * std::size(kRates);
    std::size_t done = 0;
    for (const double lr : kRates) {
      for (const std::uint64_t k : kKept) {
        progress(done++, parts);
        for (const Method method : kMethods) losses_[{method, k, lr}] = losses_of(method, k, lr);
      }
    }
  }

  std::uint64_t rounds() const { return rounds_; }
  std::uint64_t first_seed() const { return first_; }
  std::uint64_t seeds() const { return seeds_; }

  // One for each seed.
  const std::vector<double>& losses(Method method, std::uint64_t k, double lr) const {
    return losses_.at({method, k, lr});
  }
  double mean(Method method, std::uint64_t k, double lr) const {
    double sum = 0;
    for (const double loss : losses(method, k, lr)) sum += loss;
    return sum / static_cast<double>(seeds_);
  }
  // In how many seeds compressing both ways ends below compressing the uplink alone.
  std::uint64_t lower(std::uint64_t k, double lr) const {
    const std::vector<double>& both = losses(Method::bidirectional, k, lr);
    const std::vector<double>& uplink = losses(Method::uplink, k, lr);
    std::uint64_t count = 0;
    for (std::size_t i = 0; i < both.size(); ++i) count += both[i] < uplink[i] ? 1U : 0U;
    return count;
  }

 private:
  std::vector<double> losses_of(Method method, std::uint64_t k, double lr) const {
    if (method == Method::dense && k != kKept[0]) return losses(method, kKept[0], lr);
    std::vector<double> losses;
    for (std::uint64_t seed = first_; seed < first_ + seeds_; ++seed) {
      losses.push_back(final_loss(method, k, lr, rounds_, seed));
    }
    return losses;
  }

  std::uint64_t rounds_;
  std::uint64_t first_;
  std::uint64_t seeds_;
  std::map<std::tuple<Method, std::uint64_t, double>, std::vector<double>> losses_;
};

std::optional<double> finite(double loss) { return std::isfinite(loss) ? std::optional(loss) : std::nullopt; }
std::string shown(double loss, int decimals) {
  if (!std::isfinite(loss)) return "diverged";
  return loss < 1e6 ? fixed(loss, decimals) : digits(loss, 3);
}

void add_numbers(const Sweep& sweep, Method method, std::uint64_t k, double lr, std::vector<Measured>& measured) {
  Measured one{.method = name_of(method), .workers = kWorkers, .lr = lr, .step = sweep.rounds()};
  if (method != Method::dense) one.k = k;
  one.metric = "mean_loss_over_seeds";
  one.value = finite(sweep.mean(method, k, lr));
  measured.push_back(one);
  if (method == Method::bidirectional) {
    one.metric = "seeds_below_uplink";
    one.value = static_cast<double>(sweep.lower(k, lr));
    measured.push_back(one);
  }
  one.metric = "mean_loss";
  one.seed = sweep.first_seed();
  for (const double loss : sweep.losses(method, k, lr)) {
    one.value = finite(loss);
    measured.push_back(one);
    ++*one.seed;
  }
}

std::string tables_of(const Sweep& sweep) {
  Table first({"method", "mean F at the end", "our rerun of the authors' script", "F*"});
  for (const Method method : kMethods) {
    first.add({name_of(method), shown(sweep.mean(method, kAuthorsK, kAuthorsRate), 3),
               kRerun[static_cast<std::size_t>(method)], fixed(kOptimum, 2)});
  }
  Table second({"lr", "K = Kd", "dense", "downlink", "uplink", "bidirectional", "lower than uplink in"});
  for (const double lr : kRates) {
    for (const std::uint64_t k : kKept) {
      second.add({digits(lr), fmt::format("{}", k), shown(sweep.mean(Method::dense, k, lr), 2),
                  shown(sweep.mean(Method::downlink, k, lr), 2), shown(sweep.mean(Method::uplink, k, lr), 2),
                  shown(sweep.mean(Method::bidirectional, k, lr), 2),
                  fmt::format("{} of {} seeds", sweep.lower(k, lr), sweep.seeds())});
    }
  }
  return fmt::format("the authors' setting: K = Kd = {}, lr {}\n{}\nother settings\n{}", kAuthorsK, kAuthorsRate,
                     first.text(), second.text());
}

// "at 700.50 with K = 1, at 682.90 with K = 2"
template <class Show>
std::string for_each_k(const Show& show) {
  std::string all;
  for (const std::uint64_t k : kKept) all += fmt::format("{}{} with K = {}", all.empty() ? "" : ", ", show(k), k);
  return all;
}

std::vector<std::string> conditions_of(const Sweep& sweep) {
  std::vector<std::string> conditions;
  for (const double lr : kRates) {
    const std::string counts = for_each_k(
        [&](std::uint64_t k) { return fmt::format("in {} of {} seeds", sweep.lower(k, lr), sweep.seeds()); });
    conditions.push_back(fmt::format("lr {}: both ways end lower than the uplink alone {}", lr, counts));
  }
  for (const double lr : kRates) {
    const std::string ends = for_each_k([&](std::uint64_t k) {
      const double loss = sweep.mean(Method::downlink, k, lr);
      return std::isfinite(loss) ? "at " + shown(loss, 2) : "beyond floats";
    });
    conditions.push_back(fmt::format("lr {}: the downlink alone ends {}; dense training at {}, the optimum is {}", lr,
                                     ends, shown(sweep.mean(Method::dense, kKept[0], lr), 2), fixed(kOptimum, 2)));
  }
  return conditions;
}

// As claimed: both ways lower in nine of ten seeds at least, and the downlink alone at the optimum.
bool as_claimed(const Sweep& sweep, std::uint64_t k, double lr) {
  return 10 * sweep.lower(k, lr) >= 9 * sweep.seeds() &&
         std::abs(sweep.mean(Method::downlink, k, lr) - kOptimum) < kNearOptimum;
}

}  // namespace

Result reproduce_downlink_toy(const Options& options, const Progress& progress) {
  const Sweep sweep(options, progress);
  Result result;
  std::size_t agree = 0;
  for (const double lr : kRates) {
    for (const std::uint64_t k : kKept) {
      agree += as_claimed(sweep, k, lr) ? 1U : 0U;
      for (const Method method : kMethods) {
        if (method != Method::dense || k == kKept[0]) add_numbers(sweep, method, k, lr, result.measured);
      }
    }
  }
  const std::size_t all = std::size(kKept) * std::size(kRates);
  result.table = tables_of(sweep);
  result.verdict = agree == all                                 ? Verdict::holds
                   : as_claimed(sweep, kAuthorsK, kAuthorsRate) ? Verdict::partly
                                                                : Verdict::does_not_hold;
  result.reason = fmt::format(
      "with K = {} and lr {} the uplink alone ends at {}, both ways at {}, lower in {} of {} seeds, the downlink alone "
      "at "
      "{}; as claimed in {} of {} settings of K and lr",
      kAuthorsK, kAuthorsRate, shown(sweep.mean(Method::uplink, kAuthorsK, kAuthorsRate), 2),
      shown(sweep.mean(Method::bidirectional, kAuthorsK, kAuthorsRate), 2), sweep.lower(kAuthorsK, kAuthorsRate),
      sweep.seeds(), shown(sweep.mean(Method::downlink, kAuthorsK, kAuthorsRate), 2), agree, all);
  result.conditions = conditions_of(sweep);
  withhold_if_short(sweep.rounds(), kRounds, result);
  return result;
}

}  // namespace sparsewire::reproduce
