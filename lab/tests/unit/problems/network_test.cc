// The multilayer perceptron: compared with PyTorch and finite differences; it learns what a linear model cannot.
#include "networks/network.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "data/random.h"
#include "problems/problem.h"

namespace sparsewire::train::network_test {
namespace {

using Precise = std::vector<double>;

Batch<double> some_batch(std::size_t inputs, std::uint32_t classes, std::size_t rows) {
  Draws draws(8, Use::data);
  Batch<double> batch;
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t i = 0; i < inputs; ++i) batch.inputs.push_back(draws.normal());
    batch.classes.push_back(draws.below(classes));
  }
  return batch;
}

Precise some_weights(std::size_t dim) {
  Draws draws(9, Use::weights);
  Precise weights(dim);
  for (double& weight : weights) weight = 0.5 * draws.normal();
  return weights;
}

TEST(Network, DoesWhatPyTorchDoes) {
  const Network<double> network({3, 4, 2, 3});
  ASSERT_EQ(network.layout().dim(), 35U);
  Precise weights(35);
  for (std::size_t i = 0; i < 35; ++i) weights[i] = std::sin(1.7 * static_cast<double>(i) + 0.3);
  const Batch<double> batch{{0.5, -1, 2, 1.5, 0.25, -0.75}, {2, 0}};
  const Precise expected = {0.190331245819,
                            0,
                            0,
                            0.000241753880872,
                            -0.380662491638,
                            0,
                            0,
                            -0.000483507761744,
                            0.761324983277,
                            0,
                            0,
                            0.000967015523488,
                            0.380662491638,
                            0,
                            0,
                            0.000483507761744,
                            1.26515059723,
                            0,
                            0,
                            0,
                            0,
                            0,
                            0.484748804047,
                            0,
                            0.544394591851,
                            0,
                            0.118060507805,
                            0.403322531986,
                            -0.521383039791,
                            0,
                            0,
                            0,
                            -0.365549415253,
                            0.403340670123,
                            -0.0377912548701};
  Network<double>::Room room;
  Precise gradient(35);
  EXPECT_NEAR(network.gradient(batch, weights, gradient, room), 1.88588891191661, 1e-13);
  for (std::size_t i = 0; i < 35; ++i) EXPECT_NEAR(gradient[i], expected[i], 1e-11) << i;
  EXPECT_EQ(network.score(batch, weights, room).right, 0U);
}

TEST(Network, HasTheGradientOfItsLoss) {
  for (const std::vector<std::size_t>& widths :
       {std::vector<std::size_t>{5, 3}, {1, 1, 2}, {6, 17, 3}, {4, 9, 8, 7, 5}}) {
    const Network<double> network(widths);
    const std::size_t dim = network.layout().dim();
    SCOPED_TRACE(dim);
    const auto batch = some_batch(widths.front(), static_cast<std::uint32_t>(widths.back()), 11);
    Precise weights = some_weights(dim);
    Precise gradient(dim, 99);
    Precise ignored(dim);
    Network<double>::Room room;
    network.gradient(batch, weights, gradient, room);
    for (std::size_t i = 0; i < dim; ++i) {
      constexpr double kStep = 1e-6;
      const double middle = weights[i];
      weights[i] = middle + kStep;
      const double above = network.gradient(batch, weights, ignored, room);
      weights[i] = middle - kStep;
      const double below = network.gradient(batch, weights, ignored, room);
      weights[i] = middle;
      EXPECT_NEAR((above - below) / (2 * kStep), gradient[i], 1e-8) << i;
    }
  }
}

TEST(Network, InFloatIsTheSameRounded) {
  const std::vector<std::size_t> widths = {30, 20, 10, 4};
  const Network<double> precise(widths);
  const Network<float> rough(widths);
  const auto batch = some_batch(30, 4, 16);
  const Precise weights = some_weights(precise.layout().dim());
  Precise expected(weights.size());
  std::vector<float> actual(weights.size());
  Network<double>::Room precise_room;
  Network<float>::Room rough_room;
  const double loss = precise.gradient(batch, weights, expected, precise_room);
  EXPECT_NEAR(rough.gradient({{batch.inputs.begin(), batch.inputs.end()}, batch.classes},
                             std::vector<float>(weights.begin(), weights.end()), actual, rough_room),
              loss, 1e-5 * loss);
  for (std::size_t i = 0; i < weights.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 2e-6) << i;
}

TEST(Network, SurvivesOutputsOfAnySize) {
  const Network<double> network({1, 2});
  Network<double>::Room room;
  Precise gradient(4);
  const double loss = network.gradient({{1}, {1}}, Precise{1e5, -1e5, 0, 0}, gradient, room);
  EXPECT_DOUBLE_EQ(loss, 2e5);
  EXPECT_EQ(gradient, (Precise{1, -1, 1, -1}));
}

TEST(Mlp, NamesItsTensors) {
  const auto problem = make_problem("mlp:inputs=5,hidden=4x3,classes=2,samples=9,held_back=9", {});
  const Layout expected(std::vector<TensorRange>{{"layer0.weight", 20},
                                                 {"layer0.bias", 4},
                                                 {"layer1.weight", 12},
                                                 {"layer1.bias", 3},
                                                 {"layer2.weight", 6},
                                                 {"layer2.bias", 2}});
  EXPECT_EQ(problem->layout(), expected);
}

// Accuracy on held-back data after some hundred steps of four workers.
double accuracy_with(const std::string& hidden) {
  constexpr int kWorkers = 4;
  const auto problem =
      make_problem("mlp:inputs=40,classes=6,samples=2000,hidden=" + hidden, {.workers = kWorkers, .seed = 3});
  const std::size_t dim = problem->layout().dim();
  std::vector<float> weights(dim);
  std::vector<float> gradient(dim);
  problem->initial_weights(weights);
  for (std::uint64_t step = 0; step < 300; ++step) {
    std::vector<float> mean(dim);
    for (int worker = 0; worker < kWorkers; ++worker) {
      problem->gradient(worker, step, weights, gradient);
      for (std::size_t i = 0; i < dim; ++i) mean[i] += gradient[i] / kWorkers;
    }
    for (std::size_t i = 0; i < dim; ++i) weights[i] -= 0.2F * mean[i];
  }
  return problem->evaluate(Part::test, weights).metric;
}

TEST(Mlp, LearnsWhatALinearModelCannot) {
  const double linear = accuracy_with("0");
  const double hidden = accuracy_with("32");
  EXPECT_GT(linear, 1.0 / 6 + 0.1);
  EXPECT_GT(hidden, linear + 0.1);
}

}  // namespace
}  // namespace sparsewire::train::network_test
