// What every problem must do: its gradients are those of its loss, and depend only on seed, worker, step and weights.
#include "problems/problem.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "data/random.h"
#include "problems/precise_problem.h"
#include "sparsewire/errors.h"

namespace sparsewire::train::problem_test {
namespace {

using ::testing::HasSubstr;
using Numbers = std::vector<float>;
using Precise = std::vector<double>;

// Every problem at a size that is quick to test: the examples, but with fewer data for mlp. Deep networks need files
// and libtorch; train_deep_test.py trains them.
std::vector<std::string> specs() {
  std::vector<std::string> all;
  for (const ProblemInfo& info : problems()) {
    if (info.is_deep) continue;
    all.emplace_back(info.name == "mlp" ? "mlp:inputs=20,hidden=12x8,classes=4,samples=100,held_back=70,batch=9"
                                        : info.example);
  }
  all.emplace_back("logreg:dim=30,samples=101,batch=0");
  all.emplace_back("logreg:dim=30,samples=101,batch=7,split=true,l2=0.5,density=1");
  all.emplace_back("mlp:inputs=6,hidden=0,classes=2,samples=33,held_back=1,batch=0");
  return all;
}

class EveryProblem : public ::testing::TestWithParam<std::string> {
 protected:
  static constexpr int kWorkers = 3;
  std::unique_ptr<Problem> problem = make(7);

  static std::unique_ptr<Problem> make(std::uint64_t seed) {
    return make_problem(GetParam(), {.workers = kWorkers, .seed = seed});
  }
  // Near the start, but not on it: there gradients may vanish.
  Numbers some_weights(std::uint64_t which) const {
    Numbers weights(problem->layout().dim());
    problem->initial_weights(weights);
    Draws draws(3, Use::noise, 0, which);
    for (float& weight : weights) weight += static_cast<float>(0.1 * draws.normal());
    return weights;
  }
};

INSTANTIATE_TEST_SUITE_P(, EveryProblem, ::testing::ValuesIn(specs()),
                         [](const auto& p) { return p.param.substr(0, p.param.find(':')) + std::to_string(p.index); });

// Along a random direction and along the gradient itself, where an error in any entry shows.
TEST_P(EveryProblem, HasTheGradientOfItsLoss) {
  const std::size_t dim = problem->layout().dim();
  const auto* precise = dynamic_cast<PreciseProblem*>(problem.get());
  for (int worker = 0; worker < kWorkers; ++worker) {
    const Numbers start = some_weights(static_cast<std::uint64_t>(worker));
    Numbers gradient(dim);
    problem->gradient(worker, 5, start, gradient);
    double length = 0;
    for (const float entry : gradient) length += static_cast<double>(entry) * entry;
    length = std::sqrt(length);
    ASSERT_GT(length, 0);
    const double step = precise != nullptr ? 1e-4 : 4e-3;
    Numbers ignored(dim);
    const auto loss_at = [&](double t) {
      Numbers weights(start);
      for (std::size_t i = 0; i < dim; ++i) weights[i] += static_cast<float>(t * gradient[i] / length);
      return problem->gradient(worker, 5, weights, ignored);
    };
    EXPECT_NEAR((loss_at(step) - loss_at(-step)) / (2 * step), length, 0.01 * length) << "worker " << worker;
  }
}

TEST_P(EveryProblem, ThatIsPreciseHasItEntryByEntry) {
  auto* precise = dynamic_cast<PreciseProblem*>(problem.get());
  if (precise == nullptr) return;
  const std::size_t dim = problem->layout().dim();
  const Numbers rough = some_weights(1);
  Precise weights(rough.begin(), rough.end());
  Precise gradient(dim);
  Precise ignored(dim);
  for (int worker = 0; worker < kWorkers; ++worker) {
    precise->gradient_at(worker, 2, weights, gradient);
    for (std::size_t i = 0; i < std::min<std::size_t>(dim, 40); ++i) {
      constexpr double kStep = 1e-5;
      const double middle = weights[i];
      weights[i] = middle + kStep;
      const double above = precise->gradient_at(worker, 2, weights, ignored);
      weights[i] = middle - kStep;
      const double below = precise->gradient_at(worker, 2, weights, ignored);
      weights[i] = middle;
      EXPECT_NEAR((above - below) / (2 * kStep), gradient[i], 1e-5 * (1 + std::abs(gradient[i]))) << worker << " " << i;
    }
  }
}

// In floats it is the same, rounded once.
TEST_P(EveryProblem, ThatIsPreciseIsTheSameInFloat) {
  auto* precise = dynamic_cast<PreciseProblem*>(problem.get());
  if (precise == nullptr) return;
  const Numbers weights = some_weights(1);
  const Precise same(weights.begin(), weights.end());
  Numbers rounded(weights.size());
  Precise exact(weights.size());
  EXPECT_EQ(problem->gradient(1, 4, weights, rounded), precise->gradient_at(1, 4, same, exact));
  EXPECT_EQ(rounded, Numbers(exact.begin(), exact.end()));
  EXPECT_EQ(problem->evaluate(Part::train, weights).loss, precise->evaluate_at(same).loss);
}

// One caller for each worker and one that evaluates: all at the same time, compared with one after the other.
TEST_P(EveryProblem, GivesTheSameBitsFromManyThreads) {
  constexpr std::uint64_t kSteps = 30;
  const std::size_t dim = problem->layout().dim();
  std::vector<Numbers> weights;
  for (std::uint64_t step = 0; step < kSteps; ++step) weights.push_back(some_weights(step));
  struct Answer {
    std::vector<Numbers> gradients;
    std::vector<double> losses;
    bool operator==(const Answer&) const = default;
  };
  const auto ask = [&](Problem& whom, int worker) {
    Answer answer;
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      Numbers gradient(dim, 99);
      const double loss = worker == kWorkers ? whom.evaluate(Part::train, weights[step]).loss
                                             : whom.gradient(worker, step, weights[step], gradient);
      answer.gradients.push_back(std::move(gradient));
      answer.losses.push_back(loss);
    }
    return answer;
  };
  const auto another = make(7);
  std::vector<Answer> at_once(kWorkers + 1);
  std::latch all_here(kWorkers + 1);
  std::vector<std::thread> threads;
  for (int worker = 0; worker <= kWorkers; ++worker) {
    threads.emplace_back([&, worker] {
      all_here.arrive_and_wait();
      at_once[static_cast<std::size_t>(worker)] = ask(*another, worker);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int worker = kWorkers; worker >= 0; --worker) {
    EXPECT_EQ(ask(*problem, worker), at_once[static_cast<std::size_t>(worker)]) << worker;
  }
}

TEST_P(EveryProblem, StartsFromItsSeed) {
  const auto start_of = [&](std::uint64_t seed) {
    Numbers weights(problem->layout().dim(), 99);
    make(seed)->initial_weights(weights);
    return weights;
  };
  EXPECT_EQ(start_of(7), start_of(7));
  for (const float weight : start_of(8)) ASSERT_LT(std::abs(weight), 99);
}

TEST_P(EveryProblem, EvaluatesAsItsMetricSays) {
  EXPECT_TRUE(problem->has(Part::train));
  for (const Part part : kParts) {
    if (!problem->has(part)) continue;
    const Score score = problem->evaluate(part, some_weights(0));
    EXPECT_TRUE(std::isfinite(score.loss));
    EXPECT_GE(score.loss, 0);
    EXPECT_GE(score.metric, 0);
    EXPECT_TRUE(problem->metric() != "accuracy" || score.metric <= 1);
    EXPECT_TRUE(!problem->metric().empty() || score.metric == 0);
    EXPECT_EQ(problem->has_penalty(), score.objective != score.loss);
  }
}

TEST_P(EveryProblem, WorksForOneWorkerAndForMany) {
  for (const int workers : {1, 20}) {
    const auto other = make_problem(GetParam(), {.workers = workers, .seed = 7});
    Numbers gradient(other->layout().dim());
    EXPECT_TRUE(std::isfinite(other->gradient(workers - 1, 0, some_weights(0), gradient))) << workers;
  }
}

TEST_P(EveryProblem, RefusesAKeyItDoesNotKnow) {
  const std::string spec = GetParam() + (GetParam().find(':') == std::string::npos ? ":" : ",") + "colour=red";
  try {
    make_problem(spec, {.workers = 2});
    ADD_FAILURE() << "was accepted";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("unknown key 'colour'"));
  }
}

// If each worker's gradient is over all its data, their mean is the gradient of what evaluate() reports.
TEST(Problem, WithFullGradientsHasTheGradientOfItsEvaluation) {
  for (const char* spec :
       {"downlink_toy:dim=6", "linreg:dim=6,samples=9", "regtopk_toy", "logreg:dim=6,samples=50,batch=0"}) {
    for (const int workers : {1, 2, 7}) {
      SCOPED_TRACE(std::string(spec) + " " + std::to_string(workers));
      const auto made = make_problem(spec, {.workers = workers, .seed = 2});
      auto* problem = dynamic_cast<PreciseProblem*>(made.get());
      ASSERT_NE(problem, nullptr);
      const std::size_t dim = problem->layout().dim();
      Precise weights(dim);
      problem->initial_weights_at(weights);
      weights[0] += 0.02;
      Precise mean(dim);
      Precise gradient(dim);
      double mean_loss = 0;
      for (int worker = 0; worker < workers; ++worker) {
        mean_loss += problem->gradient_at(worker, 0, weights, gradient) / workers;
        for (std::size_t i = 0; i < dim; ++i) mean[i] += gradient[i] / workers;
      }
      EXPECT_NEAR(problem->evaluate_at(weights).objective, mean_loss, 1e-9 * mean_loss);
      for (std::size_t i = 0; i < dim; ++i) {
        constexpr double kStep = 1e-5;
        Precise above(weights);
        Precise below(weights);
        above[i] += kStep;
        below[i] -= kStep;
        const double slope =
            (problem->evaluate_at(above).objective - problem->evaluate_at(below).objective) / (2 * kStep);
        EXPECT_NEAR(slope, mean[i], 1e-5 * (1 + std::abs(mean[i]))) << i;
      }
    }
  }
}

TEST(Problem, RefusesABadSpec) {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"nosuch", "there are downlink_toy, linreg"},
      {"linreg:dim=0", "dim=0 is not a whole number in [1, 4096]"},
      {"linreg:dim=100,samples=49", "[linreg] samples=49 on each of 2 workers are fewer than the dim=100 weights"},
      {"linreg:noise=-1", "noise=-1 is not in"},
      {"logreg:density=0", "density=0 is not in (0, 1]"},
      {"logreg:samples=1,batch=0",
       "[round_robin] 1 samples cannot be split between 2 workers: worker 1 would get none"},
      {"logreg:l2=-1", "l2=-1 is not in"},
      {"logreg:samples=10,batch=11",
       "[logreg] batch=11 is more than the 10 training samples: with batch=0 a worker takes"},
      {"mlp:samples=10,batch=11", "[mlp] batch=11 is more than the 10 training samples: with batch=0 a worker takes"},
      {"mlp:batch=1000000000000000000", "[mlp] batch=1000000000000000000 is not a whole number in [0, "},
      {"mlp:hidden=64x", "hidden=64x is neither 0 nor widths"},
      {"mlp:hidden=x64", "hidden=x64 is neither"},
      {"mlp:hidden=64x0", "hidden=64x0 is neither"},
      {"mlp:classes=1", "classes=1 is not a whole number in [2, "},
      {"mlp:samples=1", "[round_robin] 1 samples cannot be split between 2 workers"},
  };
  for (const auto& [spec, says] : wrong) {
    SCOPED_TRACE(spec);
    try {
      make_problem(spec, {.workers = 2});
      ADD_FAILURE() << "was accepted";
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr(says));
    }
  }
}

}  // namespace
}  // namespace sparsewire::train::problem_test
