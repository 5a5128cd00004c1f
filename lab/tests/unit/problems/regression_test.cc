// The regressions and the toy, compared with the papers and with slow versions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "data/random.h"
#include "problems/cholesky.h"
#include "problems/linreg.h"
#include "problems/logistic.h"
#include "problems/logreg.h"
#include "problems/margins.h"
#include "sparsewire/errors.h"
#include "unit/folder.h"

namespace sparsewire::train::regression_test {
namespace {

using ::testing::HasSubstr;
using Precise = std::vector<double>;

double length_of(const Precise& x) {
  double sum = 0;
  for (const double entry : x) sum += entry * entry;
  return std::sqrt(sum);
}

Precise mean_gradient(PreciseProblem& problem, int workers, const Precise& weights) {
  Precise mean(weights.size());
  Precise gradient(weights.size());
  for (int worker = 0; worker < workers; ++worker) {
    problem.gradient_at(worker, 0, weights, gradient);
    for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += gradient[i] / workers;
  }
  return mean;
}

// Weights after `steps` steps without compression.
Precise descend(PreciseProblem& problem, int workers, double lr, int steps) {
  Precise weights(problem.layout().dim());
  problem.initial_weights_at(weights);
  for (int step = 0; step < steps; ++step) {
    const Precise gradient = mean_gradient(problem, workers, weights);
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] -= lr * gradient[i];
  }
  return weights;
}

TEST(Logistic, IsExactAtAnyMargin) {
  EXPECT_DOUBLE_EQ(logistic_loss(0), std::log(2.0));
  EXPECT_DOUBLE_EQ(logistic_loss(1), 0.31326168751822286);
  EXPECT_DOUBLE_EQ(logistic_loss(-1e4), 1e4);
  EXPECT_DOUBLE_EQ(logistic_loss(700), std::exp(-700.0));
  EXPECT_EQ(logistic_loss(1e4), 0);
  EXPECT_DOUBLE_EQ(logistic_pull(0), 0.5);
  EXPECT_EQ(logistic_pull(-1e4), 1);
  EXPECT_DOUBLE_EQ(logistic_pull(700), std::exp(-700.0));
  EXPECT_EQ(logistic_pull(1e4), 0);
}

TEST(RegtopkToy, DescendsAsThePaperSays) {
  const auto made = make_problem("regtopk_toy", {.workers = 2});
  auto& toy = dynamic_cast<PreciseProblem&>(*made);
  const std::vector<std::pair<int, double>> published = {{0, 0.31326}, {1, 0.25371}, {10, 0.08797}, {100, 0.01097}};
  for (const auto& [steps, loss] : published) {
    EXPECT_NEAR(toy.evaluate_at(descend(toy, 2, 0.9, steps)).loss, loss, 5e-6) << steps;
  }
}

TEST(Cholesky, Solves) {
  // Rows of a matrix that is positive definite; the upper half is not read.
  const Precise matrix = {4, 99, 99, 2, 5, 99, -2, 1, 6};
  const Precise x = solve_positive(matrix, Precise{2, 11, 18});
  EXPECT_NEAR(4 * x[0] + 2 * x[1] - 2 * x[2], 2, 1e-14);
  EXPECT_NEAR(2 * x[0] + 5 * x[1] + 1 * x[2], 11, 1e-14);
  EXPECT_NEAR(-2 * x[0] + 1 * x[1] + 6 * x[2], 18, 1e-14);
  EXPECT_THROW(solve_positive({1, 2, 2, 1}, Precise{1, 1}), UsageError);
  EXPECT_THROW(solve_positive({1, 1, 1, 1}, Precise{1, 1}), UsageError);
}

// The same random numbers in the same order, and the formula as the paper writes it.
TEST(Linreg, HasThePapersGradient) {
  const LinregShape shape{.dim = 7, .samples = 11, .spread = 5, .noise = 0.5};
  const auto problem = make_linreg(shape, {.workers = 3, .seed = 4});
  const Precise weights = {1, -2, 3, 0.5, 0, -1, 2};
  for (int worker = 0; worker < 3; ++worker) {
    Draws draws(4, Use::data, worker);
    const double common = std::sqrt(5.0) * draws.normal();
    Precise truth(7);
    for (double& entry : truth) entry = common + draws.normal();
    Precise expected(7);
    double loss = 0;
    for (int sample = 0; sample < 11; ++sample) {
      const double noise = std::sqrt(0.5) * draws.normal();
      Precise a(7);
      double residual = -noise;
      for (std::size_t i = 0; i < 7; ++i) {
        a[i] = draws.normal();
        residual += a[i] * (weights[i] - truth[i]);
      }
      for (std::size_t i = 0; i < 7; ++i) expected[i] += 2.0 / 11 * a[i] * residual;
      loss += residual * residual / 11;
    }
    Precise gradient(7);
    EXPECT_NEAR(problem->gradient_at(worker, 0, weights, gradient), loss, 1e-11 * loss);
    for (std::size_t i = 0; i < 7; ++i) EXPECT_NEAR(gradient[i], expected[i], 1e-11) << worker << " " << i;
  }
}

TEST(Linreg, ReachesItsOptimumWithoutCompression) {
  const auto problem = make_linreg({.dim = 40, .samples = 100}, {.workers = 5, .seed = 1});
  const Precise optimum(problem->optimum().begin(), problem->optimum().end());
  EXPECT_LT(length_of(mean_gradient(*problem, 5, optimum)), 1e-12);
  const Score at_start = problem->evaluate_at(descend(*problem, 5, 0.01, 0));
  const Score at_end = problem->evaluate_at(descend(*problem, 5, 0.01, 4000));
  EXPECT_GT(at_start.metric, 1);
  EXPECT_LT(at_end.metric, 1e-24);
}

// With one worker and no noise the optimum is its true weights: t*1 + N(0, I).
TEST(Linreg, DrawsTrueWeightsWithTheGivenSpread) {
  constexpr int kSeeds = 400;
  double between = 0;
  double within = 0;
  for (int seed = 0; seed < kSeeds; ++seed) {
    const auto problem = make_linreg({.dim = 20, .samples = 40, .spread = 5, .noise = 0},
                                     {.workers = 1, .seed = static_cast<std::uint64_t>(seed)});
    double mean = 0;
    for (const double entry : problem->optimum()) mean += entry / 20;
    for (const double entry : problem->optimum()) within += (entry - mean) * (entry - mean) / 19 / kSeeds;
    between += mean * mean / kSeeds;
  }
  EXPECT_NEAR(between, 5 + 1.0 / 20, 4 * 5 * std::sqrt(2.0 / kSeeds));
  EXPECT_NEAR(within, 1, 4 * std::sqrt(2.0 / 19 / kSeeds));
}

TEST(Linreg, LeavesTheNoiseAtTheOptimum) {
  const auto problem = make_linreg({.dim = 10, .samples = 5000, .noise = 0.5}, {.workers = 1, .seed = 3});
  EXPECT_NEAR(problem->evaluate_at(problem->optimum()).loss, 0.5, 4 * 0.5 * std::sqrt(2.0 / 5000));
}

// From the Gram matrix, by the formula for two unknowns.
TEST(Logreg, KnowsItsSmoothness) {
  const SparseRows rows = margin_rows(draw_samples({.dim = 2, .samples = 60, .density = 0.7}, 5).train);
  double a = 0, b = 0, c = 0;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const double x = margin_of(rows, row, Precise{1, 0});
    const double y = margin_of(rows, row, Precise{0, 1});
    a += x * x, b += x * y, c += y * y;
  }
  const double largest = (a + c) / 2 + std::sqrt((a - c) * (a - c) / 4 + b * b);
  EXPECT_NEAR(largest_singular_value2(rows), largest, 1e-10 * largest);
  const auto problem = make_logreg("logreg:dim=2,samples=60,density=0.7", {.workers = 3, .seed = 5});
  EXPECT_NEAR(problem->smoothness(), largest / 240, 1e-10 * largest);
  EXPECT_DOUBLE_EQ(problem->l2(), problem->smoothness() / 10000);
}

TEST(Logreg, FindsTheLargestOfManyNearlyEqualSingularValues) {
  const Folder folder;
  folder.write("x", "1 1:3\n1 2:-2.97\n1 3:2.9\n-1 4:1\n");
  EXPECT_NEAR(make_logreg("logreg", {.data = folder / "x"})->smoothness(), 9.0 / 16, 1e-9);
  folder.write("zero", "1 1:0\n-1 1:0\n");
  EXPECT_EQ(make_logreg("logreg", {.data = folder / "zero"})->smoothness(), 0);
}

// Newton's method with the whole Hessian, from the formulas.
Precise slow_optimum(const SparseRows& rows, double l2) {
  const std::size_t dim = rows.dim;
  const auto samples = static_cast<double>(rows.size());
  Precise x(dim);
  for (int step = 0; step < 30; ++step) {
    Precise gradient(dim);
    Precise hessian(dim * dim);
    for (std::size_t i = 0; i < dim; ++i) gradient[i] = l2 * x[i], hessian[i * dim + i] = l2;
    for (std::size_t row = 0; row < rows.size(); ++row) {
      Precise a(dim);
      add_row(rows, row, 1, a);
      const double right = 1 / (1 + std::exp(-margin_of(rows, row, x)));
      for (std::size_t i = 0; i < dim; ++i) {
        gradient[i] -= (1 - right) * a[i] / samples;
        for (std::size_t j = 0; j < dim; ++j) hessian[i * dim + j] += right * (1 - right) * a[i] * a[j] / samples;
      }
    }
    const Precise change = solve_positive(hessian, gradient);
    // Short steps while it is far away.
    for (std::size_t i = 0; i < dim; ++i) x[i] -= change[i] / std::max(1.0, length_of(change));
  }
  return x;
}

TEST(Logreg, KnowsItsOptimum) {
  for (const LogregShape& shape : {LogregShape{.dim = 12, .samples = 300, .density = 0.5},
                                   LogregShape{.dim = 25, .samples = 10, .density = 1, .noise = 0}}) {
    SCOPED_TRACE(shape.samples);
    const std::string spec =
        "logreg:batch=0,dim=" + std::to_string(shape.dim) + ",samples=" + std::to_string(shape.samples) +
        ",density=" + (shape.density < 1 ? "0.5" : "1") + ",noise=" + (shape.noise > 0 ? "0.1" : "0");
    const auto problem = make_logreg(spec, {.workers = 4, .seed = 6});
    const LogregOptimum optimum = problem->optimum();
    EXPECT_LT(optimum.gradient_norm, 1e-12);
    EXPECT_LT(length_of(mean_gradient(*problem, 4, optimum.weights)), 1e-12);
    EXPECT_NEAR(problem->evaluate_at(optimum.weights).objective, optimum.loss, 1e-14);
    const Precise slow = slow_optimum(margin_rows(draw_samples(shape, 6).train), problem->l2());
    for (std::size_t i = 0; i < slow.size(); ++i) EXPECT_NEAR(optimum.weights[i], slow[i], 1e-7) << i;
  }
}

TEST(Logreg, HasNoOptimumWithoutRegularisation) { EXPECT_THROW(make_logreg("logreg:l2=0", {})->optimum(), UsageError); }

// Row i has feature i alone, so a gradient shows which rows were drawn.
std::set<std::size_t> rows_drawn(Problem& problem, int worker, std::uint64_t step) {
  const std::vector<float> weights(problem.layout().dim());
  std::vector<float> gradient(weights.size());
  problem.gradient(worker, step, weights, gradient);
  std::set<std::size_t> drawn;
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    if (gradient[i] != 0) drawn.insert(i);
  }
  return drawn;
}

TEST(Logreg, DrawsRowsAsAsked) {
  const Folder folder;
  folder.write("x", "1 1:1\n0 2:1\n1 3:1\n0 4:1\n1 5:1\n0 6:1\n1 7:1\n");
  const ProblemPlace context{.workers = 3, .seed = 2, .data = folder / "x"};
  const auto from_all = make_problem("logreg", context);
  const auto from_own = make_problem("logreg:split=true", context);
  const auto all_own = make_problem("logreg:batch=0", context);
  const auto everything = make_problem("logreg:batch=0,split=false", context);
  const std::vector<std::set<std::size_t>> own = {{0, 3, 6}, {1, 4}, {2, 5}};
  int differ = 0;
  for (int worker = 0; worker < 3; ++worker) {
    std::set<std::size_t> seen_all;
    std::set<std::size_t> seen_own;
    for (std::uint64_t step = 0; step < 100; ++step) {
      EXPECT_EQ(rows_drawn(*from_all, worker, step).size(), 1U);
      seen_all.merge(rows_drawn(*from_all, worker, step));
      seen_own.merge(rows_drawn(*from_own, worker, step));
      if (rows_drawn(*from_all, worker, step) != rows_drawn(*from_all, (worker + 1) % 3, step)) ++differ;
    }
    EXPECT_EQ(seen_all.size(), 7U);
    EXPECT_EQ(seen_own, own[static_cast<std::size_t>(worker)]);
    EXPECT_EQ(rows_drawn(*all_own, worker, 0), own[static_cast<std::size_t>(worker)]);
    EXPECT_EQ(rows_drawn(*everything, worker, 0).size(), 7U);
  }
  EXPECT_GT(differ, 200);
}

// The larger number, or the later word, is +1: its features pull the weights up.
TEST(Logreg, TakesAnyTwoLabels) {
  const Folder folder;
  for (const auto& [low, high] : std::vector<std::pair<std::string, std::string>>{
           {"-1", "+1"}, {"0", "1"}, {"1", "2"}, {"9", "10"}, {"ham", "spam"}, {"7", "word"}}) {
    SCOPED_TRACE(low + " " + high);
    folder.write("x", high + " 1:1\n" + low + " 2:1\n" + low + " 2:2\n");
    const auto problem = make_logreg("logreg:l2=0.1", {.data = folder / "x"});
    const LogregOptimum optimum = problem->optimum();
    EXPECT_GT(optimum.weights[0], 0);
    EXPECT_LT(optimum.weights[1], 0);
    EXPECT_EQ(problem->evaluate_at(optimum.weights).metric, 1);
    EXPECT_EQ(problem->evaluate_at(Precise{0, 0}).metric, 0.5);
    EXPECT_EQ(problem->evaluate_at(Precise{-1, 1}).metric, 0);
  }
}

TEST(Logreg, RefusesDataThatAreNotForIt) {
  const Folder folder;
  folder.write("empty", "# nothing\n");
  folder.write("flat", "1\n-1\n");
  folder.write("three", "1 1:1\n2 1:1\n0.5 1:1\n");
  folder.write("good", "1 1:1\n2 1:1\n");
  folder.write("single", "7 1:1\n7.0 1:2\n+7 1:3\n");
  folder.write("classes", "1 1:1\n2 1:1\ncat 1:1\n");
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"empty", "holds no data"},
      {"flat", "none has a feature"},
      {"three", "has 3 different labels, and one of them is 0.5: more than two must be whole numbers or words"},
      {"single", "single' have the label '7': training needs at least two labels"},
      {"none", "No such file"}};
  const auto complaint = [&](const std::string& spec, const std::string& file) -> std::string {
    try {
      make_problem(spec, {.data = folder / file});
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  for (const auto& [file, says] : wrong) EXPECT_THAT(complaint("logreg", file), HasSubstr(says)) << file;
  EXPECT_EQ(complaint("logreg", "good"), "");
  EXPECT_THROW(make_logreg("logreg", {.data = folder / "classes"}), UsageError) << "here only two labels";
  EXPECT_EQ(complaint("logreg", "classes"), "");
  EXPECT_THAT(complaint("logreg:samples=5", "good"), HasSubstr("samples= is for synthetic data"));
  for (const char* spec : {"linreg", "mlp", "regtopk_toy", "downlink_toy"}) {
    EXPECT_THAT(complaint(spec, "good"), HasSubstr("takes no data")) << spec;
  }
}

// Their weights would take memory out of proportion to the file.
TEST(Logreg, TakesFarFeaturesOnlyIfTheirNumberIsGiven) {
  const Folder folder;
  folder.write("far", "+1 1:1\n-1 200000000:1\n");
  folder.write("near", "+1 1:1\n-1 4194304:1\n");
  folder.write("classes", "1 1:1\n2 1:1\n3 2097152:1\n");
  std::string dense = "+1 1:1\n-1";
  for (int index = 1; index <= 600000; ++index) dense += " " + std::to_string(8 * index) + ":1";
  folder.write("many", dense);
  const auto dim = [&](const std::string& spec, const std::string& file) {
    return make_problem(spec, {.data = folder / file})->layout().dim();
  };
  const auto complaint = [&](const std::string& spec, const std::string& file) -> std::string {
    try {
      dim(spec, file);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(complaint("logreg", "far"), HasSubstr("far' has a feature 200000000, which needs 200000000 weights, and "
                                                    "only 2 entries; if that is meant, say it with "
                                                    "logreg:dim=200000000"));
  EXPECT_THAT(complaint("logreg", "classes"), HasSubstr("which needs 6291456 weights"));
  EXPECT_EQ(dim("logreg", "near"), 4194304U);
  EXPECT_EQ(dim("logreg", "many"), 4800000U);
  EXPECT_EQ(dim("logreg:dim=4194305", "near"), 4194305U);
  EXPECT_EQ(dim("logreg:dim=2097152", "classes"), 6291456U);
  EXPECT_THAT(complaint("logreg:dim=4194303", "near"), HasSubstr("has a feature 4194304, more than dim=4194303"));
}

// Computed with numpy: the eigenvalues of A^T A, and Newton's method.
struct PublicSet {
  std::string name;
  std::size_t samples;
  double smoothness, lr, loss, first_weight, loss_one_away;
};

TEST(Logreg, AgreesWithNumpyOnPublicData) {
  const char* folder = std::getenv("SPARSEWIRE_DATA");  // NOLINT(concurrency-mt-unsafe): nobody here calls setenv
  if (folder == nullptr) GTEST_SKIP() << "SPARSEWIRE_DATA names no folder with libsvm/a9a and libsvm/w8a";
  for (const PublicSet& set :
       {PublicSet{"a9a", 32561, 1.57191969922266, 0.636101201921, 0.3252780301519299, -1.3708127283, 8.15549233019},
        PublicSet{"w8a", 49749, 0.661199384494479, 1.51225187659, 0.1374177634105359, -1.40462192588, 3.63704261464}}) {
    SCOPED_TRACE(set.name);
    const auto problem = make_logreg("logreg", {.workers = 20, .data = std::string(folder) + "/libsvm/" + set.name});
    EXPECT_EQ(problem->samples(), set.samples);
    EXPECT_NEAR(problem->smoothness(), set.smoothness, 1e-11);
    EXPECT_NEAR(1 / (problem->smoothness() + problem->l2()), set.lr, 1e-10);
    const LogregOptimum optimum = problem->optimum();
    EXPECT_NEAR(optimum.loss, set.loss, 1e-12);
    EXPECT_NEAR(optimum.weights[0], set.first_weight, 1e-9);
    Precise away(optimum.weights);
    for (double& weight : away) weight += 1;
    EXPECT_NEAR(problem->evaluate_at(away).objective, set.loss_one_away, 1e-9);
  }
}

}  // namespace
}  // namespace sparsewire::train::regression_test
