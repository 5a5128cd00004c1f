// Optimisers compared with PyTorch's numbers and with a slow version in double; saved states continue bit for bit.
#include "loop/optimiser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "data/random.h"
#include "sparsewire/errors.h"

namespace sparsewire::train::optimiser_test {
namespace {

using ::testing::HasSubstr;
using Numbers = std::vector<float>;

struct Published {
  std::string spec;
  Numbers weights;  // after four steps of PyTorch 1.13
};

const std::vector<Published> kPyTorch = {
    {"sgd", {0.86500001F, -1.85750008F, 0.37499997F}},
    {"sgd:weight_decay=0.01", {0.861015975F, -1.84986174F, 0.373901904F}},
    {"sgd:momentum=0.9,weight_decay=0.01", {0.853441119F, -1.55701029F, -0.340150595F}},
    {"sgd:momentum=0.9,weight_decay=0.01,nesterov=true", {0.729243636F, -1.45229971F, -0.379155785F}},
    {"adam", {0.89208132F, -1.74490881F, 0.295304716F}},
    {"adam:weight_decay=0.1,beta1=0.8,beta2=0.95,epsilon=1e-3", {0.853502095F, -1.71131754F, 0.30905354F}},
    {"adamw:weight_decay=0.1", {0.855034709F, -1.67070842F, 0.280531108F}},
};

TEST(Optimiser, DoesWhatPyTorchDoes) {
  const std::vector<Numbers> gradients = {{0.5F, -1.25F, 3}, {-0.75F, 0.125F, 2}, {0.1F, 0, -4}, {1.5F, -0.3F, 0.25F}};
  for (const Published& published : kPyTorch) {
    SCOPED_TRACE(published.spec);
    const auto optimiser = make_optimiser(published.spec, 3);
    Numbers weights = {1, -2, 0.5F};
    for (const Numbers& gradient : gradients) optimiser->apply(gradient, {.lr = 0.1}, weights);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(weights[i], published.weights[i], 5e-7) << i;
  }
}

Numbers synthetic_gradient(std::uint64_t step, std::size_t dim) {
  Draws draws(5, Use::noise, 0, step);
  Numbers gradient(dim);
  for (float& entry : gradient) entry = static_cast<float>(draws.normal());
  return gradient;
}

double synthetic_lr(std::uint64_t step) { return 0.02 / (1 + 0.1 * static_cast<double>(step)); }

// Written from the formulas: one weight, computed from all its past gradients.
struct Slow {
  double momentum = 0, decay = 0, beta1 = 0.9, beta2 = 0.999, weight = 0;
  bool nesterov = false;
  double v = 0, m = 0, s = 0, p1 = 1, p2 = 1;

  void sgd(double g, double lr) {
    g += decay * weight;
    v = momentum * v + g;
    weight -= lr * (nesterov ? g + momentum * v : v);
  }
  void adam(double g, double lr, bool decoupled) {
    if (decoupled) weight *= 1 - lr * decay;
    if (!decoupled) g += decay * weight;
    m += (1 - beta1) * (g - m);
    s += (1 - beta2) * (g * g - s);
    p1 *= beta1;
    p2 *= beta2;
    weight -= lr * (m / (1 - p1)) / (std::sqrt(s / (1 - p2)) + 1e-8);
  }
};

TEST(Optimiser, StaysWithASlowVersionOver200Steps) {
  constexpr std::size_t kDim = 5;
  for (const std::string kind : {"sgd:momentum=0.8,nesterov=true", "sgd:momentum=0.8", "sgd:nesterov=false",
                                 "adam:beta1=0.7", "adamw:beta1=0.7"}) {
    SCOPED_TRACE(kind);
    const auto optimiser = make_optimiser(kind + ",weight_decay=0.05", kDim);
    Slow one{.decay = 0.05};
    one.momentum = kind.find("momentum") != std::string::npos ? 0.8 : 0;
    one.nesterov = kind.find("nesterov=true") != std::string::npos;
    one.beta1 = 0.7;
    std::vector<Slow> slow(kDim, one);
    Numbers weights(kDim);
    for (std::uint64_t step = 0; step < 200; ++step) {
      const Numbers gradient = synthetic_gradient(step, kDim);
      optimiser->apply(gradient, {.lr = synthetic_lr(step)}, weights);
      for (std::size_t i = 0; i < kDim; ++i) {
        if (kind[0] == 's') slow[i].sgd(gradient[i], synthetic_lr(step));
        if (kind[0] == 'a') slow[i].adam(gradient[i], synthetic_lr(step), kind.substr(0, 5) == "adamw");
      }
    }
    for (std::size_t i = 0; i < kDim; ++i) EXPECT_NEAR(weights[i], slow[i].weight, 2e-6) << i;
  }
}

TEST(Optimiser, ThatIsPlainTakesAnUpdateThatHoldsTheLearningRate) {
  for (const char* spec : {"sgd", "sgd:weight_decay=0.5"}) {
    SCOPED_TRACE(spec);
    const auto optimiser = make_optimiser(spec, 2);
    ASSERT_TRUE(optimiser->is_plain());
    Numbers raw = {1, 2};
    Numbers scaled = raw;
    optimiser->apply(Numbers{4, -8}, {.lr = 0.25}, raw);
    optimiser->apply(Numbers{1, -2}, {.lr = 0.25, .holds_lr = true}, scaled);
    EXPECT_EQ(raw, scaled);
  }
}

TEST(Optimiser, AppliesASparseUpdateWithTheBitsOfTheDenseOne) {
  SparseVector update;
  update.dim = 5;
  update.indices = {1, 4};
  update.values = {0.1F, -3.3F};
  const Numbers dense = {0, 0.1F, 0, 0, -3.3F};
  for (const bool holds_lr : {false, true}) {
    const Applied how{.lr = 0.3, .holds_lr = holds_lr};
    Numbers one = {0.7F, -0.0F, 1e-40F, -5, 0.11F};
    Numbers other = one;
    const auto optimiser = make_optimiser("sgd", 5);
    optimiser->apply(dense, how, one);
    apply_sparse(optimiser->begin_step(how), update, other);
    EXPECT_EQ(one, other);
  }
  for (const char* spec : {"sgd:weight_decay=0.1", "sgd:momentum=0.5", "adam"}) {
    EXPECT_FALSE(make_optimiser(spec, 5)->begin_step({}).is_sparse()) << spec;
  }
}

TEST(Optimiser, ThatIsNotPlainRefusesIt) {
  for (const char* spec : {"sgd:momentum=0.9", "adam", "adamw"}) {
    SCOPED_TRACE(spec);
    const auto optimiser = make_optimiser(spec, 1);
    EXPECT_FALSE(optimiser->is_plain());
    EXPECT_TRUE(optimiser->has_momentum());
    Numbers weights = {1};
    EXPECT_THROW(optimiser->apply(Numbers{1}, {.lr = 0.25, .holds_lr = true}, weights), UsageError);
    EXPECT_EQ(weights, Numbers{1});
  }
}

class EveryOptimiser : public ::testing::TestWithParam<OptimiserInfo> {};

std::vector<std::byte> saved(Optimiser& optimiser) {
  State state;
  optimiser.serialize(state);
  return std::move(state).bytes();
}

void restore(Optimiser& optimiser, const std::vector<std::byte>& bytes) {
  State state(bytes);
  optimiser.serialize(state);
  state.finish();
}

TEST_P(EveryOptimiser, ContinuesBitForBitAfterSaving) {
  const std::string spec(GetParam().example);
  for (const std::size_t dim : {0U, 1U, 37U}) {
    const auto whole = make_optimiser(spec, dim);
    auto parts = make_optimiser(spec, dim);
    Numbers expected(dim, 1);
    Numbers actual(dim, 1);
    for (std::uint64_t step = 0; step < 6; ++step) {
      whole->apply(synthetic_gradient(step, dim), {.lr = 0.1}, expected);
      parts->apply(synthetic_gradient(step, dim), {.lr = 0.1}, actual);
      const auto bytes = saved(*parts);
      parts = make_optimiser(spec, dim);
      restore(*parts, bytes);
    }
    EXPECT_EQ(actual, expected);
  }
}

TEST_P(EveryOptimiser, RefusesWhatAnotherOneSaved) {
  const auto optimiser = make_optimiser(GetParam().example, 4);
  EXPECT_THROW(restore(*optimiser, saved(*make_optimiser(GetParam().example, 5))), UsageError);
  for (const OptimiserInfo& other : optimisers()) {
    if (other.name == GetParam().name) continue;
    EXPECT_THROW(restore(*optimiser, saved(*make_optimiser(other.example, 4))), UsageError) << other.name;
  }
}

TEST_P(EveryOptimiser, DescendsAParabola) {
  const auto optimiser = make_optimiser(GetParam().example, 1);
  Numbers weights = {1};
  for (int step = 0; step < 300; ++step) optimiser->apply(Numbers(weights), {.lr = 0.05}, weights);
  EXPECT_LT(std::abs(weights[0]), 0.01F);
}

INSTANTIATE_TEST_SUITE_P(, EveryOptimiser, ::testing::ValuesIn(optimisers().begin(), optimisers().end()),
                         [](const auto& p) { return std::string(p.param.name); });

TEST(Optimiser, RefusesABadSpec) {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"sgd:momentum=1", "[sgd] momentum=1 is not in [0, 1)"},
      {"sgd:nesterov=true", "needs a momentum"},
      {"sgd:weight_decay=-1", "weight_decay=-1 is not in"},
      {"adam:beta2=1", "beta2=1 is not in [0, 1)"},
      {"adam:epsilon=0", "epsilon=0 is not in"},
      {"adamw:momentum=0.9", "unknown key 'momentum'"},
      {"sdg", "there are sgd, adam, adamw"},
  };
  for (const auto& [spec, says] : wrong) {
    SCOPED_TRACE(spec);
    try {
      make_optimiser(spec, 3);
      ADD_FAILURE() << "was accepted";
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr(says));
    }
  }
}

}  // namespace
}  // namespace sparsewire::train::optimiser_test
