// Logistic regression with any number of labels and an intercept, compared with a slow version and with differences of
// its loss.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iomanip>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "data/random.h"
#include "problems/precise_problem.h"
#include "unit/folder.h"

namespace sparsewire::train::softmax_test {
namespace {

using Precise = std::vector<double>;

// Dense samples, with labels as they are written.
struct Table {
  std::vector<Precise> features;
  std::vector<int> labels;
};

Table some_table(const std::vector<int>& labels, std::size_t samples, std::size_t dim) {
  Draws draws(5, Use::data);
  Table table;
  for (std::size_t i = 0; i < samples; ++i) {
    Precise row(dim);
    for (double& entry : row) entry = draws.uniform() < 0.4 ? 0 : std::round(1000 * draws.normal()) / 1000;
    row.back() = 1;  // so that all features are in the file
    table.features.push_back(row);
    table.labels.push_back(labels[draws.below(static_cast<std::uint32_t>(labels.size()))]);
  }
  for (std::size_t i = 0; i < labels.size(); ++i) table.labels[i] = labels[i];
  return table;
}

std::string as_libsvm(const Table& table) {
  std::ostringstream text;
  text << std::setprecision(17);
  for (std::size_t row = 0; row < table.features.size(); ++row) {
    text << table.labels[row];
    for (std::size_t i = 0; i < table.features[row].size(); ++i) {
      if (table.features[row][i] != 0) text << ' ' << i + 1 << ':' << table.features[row][i];
    }
    text << '\n';
  }
  return text.str();
}

struct Slow {
  double loss = 0;
  Precise gradient;  // without l2
};

// From the definition: -log of the softmax of the right class, and its derivative (p_c - [c = y]) * a, class by class.
// Two classes are two columns of softmax, of which the first has no weights.
Slow slow_softmax(const Table& table, const std::vector<std::size_t>& rows, const Precise& weights, bool intercept) {
  std::map<int, std::size_t> classes;  // ascending
  for (const int label : table.labels) classes.emplace(label, 0);
  std::size_t number = 0;
  for (auto& one : classes) one.second = number++;
  const std::size_t columns = classes.size() == 2 ? 1 : classes.size();
  const std::size_t skipped = classes.size() - columns;
  Slow slow{.gradient = Precise(weights.size())};
  for (const std::size_t row : rows) {
    Precise a = table.features[row];
    if (intercept) a.push_back(1);
    Precise exps(classes.size(), 1);
    double sum = 0;
    for (std::size_t c = 0; c < classes.size(); ++c) {
      double output = 0;
      for (std::size_t i = 0; i < a.size() && c >= skipped; ++i) output += a[i] * weights[i * columns + c - skipped];
      exps[c] = std::exp(output);
      sum += exps[c];
    }
    const std::size_t right = classes.at(table.labels[row]);
    slow.loss -= std::log(exps[right] / sum) / static_cast<double>(rows.size());
    for (std::size_t c = skipped; c < classes.size(); ++c) {
      const double pull = exps[c] / sum - (c == right ? 1 : 0);
      for (std::size_t i = 0; i < a.size(); ++i) {
        slow.gradient[i * columns + c - skipped] += pull * a[i] / static_cast<double>(rows.size());
      }
    }
  }
  return slow;
}

std::vector<std::size_t> round_robin(std::size_t samples, std::size_t worker, std::size_t workers) {
  std::vector<std::size_t> rows;
  for (std::size_t row = worker; row < samples; row += workers) rows.push_back(row);
  return rows;
}

TEST(Softmax, HasTheGradientsOfASlowVersionAndOfItsLoss) {
  constexpr std::size_t kSamples = 60;
  constexpr std::size_t kDim = 6;
  constexpr int kWorkers = 3;
  constexpr double kL2 = 0.05;
  for (const std::vector<int>& labels : {std::vector<int>{-1, 1}, {3, -7, 10}, {0, 1, 2, 3, 4}}) {
    for (const bool intercept : {false, true}) {
      SCOPED_TRACE(std::to_string(labels.size()) + (intercept ? " with an intercept" : ""));
      const Folder folder;
      const Table table = some_table(labels, kSamples, kDim);
      folder.write("x", as_libsvm(table));
      const auto made = make_problem(std::string("logreg:batch=0,l2=0.05,intercept=") + (intercept ? "true" : "false"),
                                     {.workers = kWorkers, .data = folder / "x"});
      auto* problem = dynamic_cast<PreciseProblem*>(made.get());
      ASSERT_NE(problem, nullptr);
      const std::size_t columns = labels.size() == 2 ? 1 : labels.size();
      const std::size_t penalised = kDim * columns;
      ASSERT_EQ(problem->layout().dim(), (kDim + (intercept ? 1 : 0)) * columns);
      if (intercept) {
        ASSERT_EQ(problem->layout().tensors().size(), 2U);
        EXPECT_EQ(problem->layout().tensors()[1].name, "intercept");
        EXPECT_EQ(problem->layout().tensors()[1].size, columns);
      }
      Draws draws(8, Use::noise);
      Precise weights(problem->layout().dim());
      for (double& weight : weights) weight = draws.normal();
      double penalty = 0;
      for (std::size_t i = 0; i < penalised; ++i) penalty += kL2 / 2 * weights[i] * weights[i];

      for (int worker = 0; worker < kWorkers; ++worker) {
        Precise gradient(weights.size(), 99);
        const double loss = problem->gradient_at(worker, 0, weights, gradient);
        const auto rows = round_robin(kSamples, static_cast<std::size_t>(worker), kWorkers);
        const Slow slow = slow_softmax(table, rows, weights, intercept);
        EXPECT_NEAR(loss, slow.loss + penalty, 1e-12);
        for (std::size_t i = 0; i < weights.size(); ++i) {
          const double expected = slow.gradient[i] + (i < penalised ? kL2 * weights[i] : 0);
          EXPECT_NEAR(gradient[i], expected, 1e-12) << i;
          constexpr double kStep = 1e-6;
          Precise moved(weights);
          Precise ignored(weights.size());
          moved[i] += kStep;
          const double above = problem->gradient_at(worker, 0, moved, ignored);
          moved[i] -= 2 * kStep;
          const double below = problem->gradient_at(worker, 0, moved, ignored);
          EXPECT_NEAR(gradient[i], (above - below) / (2 * kStep), 1e-7) << i;
        }
      }
      const Slow all = slow_softmax(table, round_robin(kSamples, 0, 1), weights, intercept);
      const Score score = problem->evaluate_at(weights);
      EXPECT_NEAR(score.loss, all.loss, 1e-12);
      EXPECT_NEAR(score.objective, all.loss + penalty, 1e-12);
    }
  }
}

TEST(Softmax, CountsWhatIsClassifiedCorrectly) {
  const Folder folder;
  folder.write("x", "5 1:1\n-2 2:1\n9 1:1 2:1\n");
  const auto problem = make_problem("logreg", {.data = folder / "x"});
  ASSERT_EQ(problem->layout().dim(), 6U);
  EXPECT_NEAR(problem->evaluate(Part::train, std::vector<float>(6)).metric, 1.0 / 3, 1e-15) << "undecided";
  // Feature 1 speaks for class 1 (5), feature 2 for class 0 (-2), both together for class 2 (9).
  const std::vector<float> weights{0, 4, 3, 4, 0, 3};
  EXPECT_EQ(problem->evaluate(Part::train, weights).metric, 1);
  EXPECT_EQ(problem->evaluate(Part::train, std::vector<float>{9, 0, 0, 0, 9, 0}).metric, 0);
}

// Classes that lie on a line through no origin: only an intercept can tell them apart.
TEST(Softmax, LearnsWithAnIntercept) {
  const auto accuracy = [](const std::string& classes, const char* intercept) {
    const Folder folder;
    folder.write("x", classes);
    const auto made = make_problem(std::string("logreg:batch=0,l2=0,intercept=") + intercept, {.data = folder / "x"});
    auto* problem = dynamic_cast<PreciseProblem*>(made.get());
    Precise weights(problem->layout().dim());
    Precise gradient(weights.size());
    for (int step = 0; step < 3000; ++step) {
      problem->gradient_at(0, 0, weights, gradient);
      for (std::size_t i = 0; i < weights.size(); ++i) weights[i] -= 0.3 * gradient[i];
    }
    return problem->evaluate_at(weights).metric;
  };
  for (const char* classes : {"1 1:1\n1 1:1.1\n2 1:3\n2 1:3.1\n", "1 1:1\n1 1:1.1\n2 1:3\n2 1:3.1\n3 1:5\n3 1:5.1\n"}) {
    EXPECT_EQ(accuracy(classes, "true"), 1);
    EXPECT_LT(accuracy(classes, "false"), 1);
  }
}

}  // namespace
}  // namespace sparsewire::train::softmax_test
