// The hard threshold: its bound, how it gets lambda, and its purpose: the least total error for a number of entries.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <sstream>

#include "sparsewire/sifter.h"
#include "unit/bare_sparsifier.h"
#include "unit/one_sift.h"
#include "unit/walk.h"

namespace sparsewire::threshold_test {
namespace {

constexpr std::size_t kSize = 400;
constexpr int kSteps = 30;

TEST(Threshold, IncludesItsBound) {
  const float below = std::nextafter(0.5F, 0.0F);
  EXPECT_EQ(sent_once("threshold:lambda=0.5", {0.5F, below, -0.5F, -below, 7, 0}), (Indices{0, 2, 4}));
}

TEST(Threshold, SendsEveryNonZeroWhenLambdaIsZero) {
  EXPECT_EQ(sent_once("threshold:lambda=0", {0, -0.0F, 1e-45F, -1}), (Indices{2, 3}));
}

TEST(Threshold, SendsWhatHasGrownToTheBound) {
  const std::unique_ptr<BareSparsifier> sparsifier = make_bare("threshold:lambda=3", {.layout = 2});
  Numbers memory(2);
  SparseVector out;
  const Numbers gradient = {1, -2};
  for (const Indices& sent : {Indices{}, Indices{1}, Indices{0}, Indices{1}}) {
    sparsifier->sift(Gradient(gradient), memory, out);
    EXPECT_EQ(out.indices, sent);
  }
}

// An entry with a gradient of lambda is sent, one just below is not, whatever the learning rate; nor does it matter by
// what the loss was scaled up.
void expect_lambda(Sifter& sifter, float lambda, const std::string& what) {
  for (const float lr : {1.0F, 0.5F, 0.03F, -0.03F, 7.0F}) {
    for (const float unscale : {1.0F, 0.125F}) {
      SCOPED_TRACE(::testing::Message() << what << ", lr " << lr << ", unscale " << unscale);
      Numbers gradient(sifter.layout().dim());
      gradient[7] = lambda / unscale;
      gradient[8] = std::nextafter(lambda, 0.0F) / unscale;
      gradient[9] = 0.9F * lambda / unscale;
      sifter.write_memory(Numbers(gradient.size()));
      SparseVector sent;
      sifter.sift(gradient, sent, lr, unscale);
      ASSERT_GE(sent.size(), 1U);
      EXPECT_EQ(sent.indices[0], 7U);
      EXPECT_LE(sent.size(), std::abs(lr) == 0.5F || std::abs(lr) == 1 ? 1U : 2U) << "lr*lambda is rounded";
      EXPECT_NE(sent.indices.back(), 9U);
    }
  }
}

TEST(Threshold, FollowsTheRuleOfOneOverTwiceTheRootOfK) {
  // k = 4 of 400: lambda = 1/4, in units of the gradient.
  Sifter sifter("threshold:ratio=0.01,rule=sqrt", "ef:scale=lr", {.layout = kSize});
  expect_lambda(sifter, 0.25F, "ef:scale=lr");
  Sifter raw("threshold:ratio=0.01,rule=sqrt", "ef", {.layout = kSize});
  expect_lambda(raw, 0.25F, "ef");
}

TEST(Threshold, FollowsTheLearningRateWhereTheMemoryHoldsIt) {
  Sifter sifter("threshold:lambda=0.25", "ef:scale=lr", {.layout = kSize});
  expect_lambda(sifter, 0.25F, "ef:scale=lr");
  Sifter raw("threshold:lambda=0.25", "ef", {.layout = kSize});
  expect_lambda(raw, 0.25F, "ef");
}

// The rule is for the whole model: all regions of it have the same lambda.
TEST(Threshold, FollowsTheRuleOfTheWholeModelInEachRegion) {
  Sifter region("threshold:ratio=0.01,rule=sqrt", "ef", {.layout = kSize / 4, .model_dim = kSize});
  expect_lambda(region, 0.25F, "region");
}

TEST(Threshold, SendsNothingInAStepWithALearningRateOfZero) {
  for (const char* spec : {"threshold:lambda=0.25", "threshold:ratio=0.5,rule=sqrt"}) {
    SCOPED_TRACE(spec);
    Sifter sifter(spec, "ef:scale=lr", {.layout = 2});
    const Numbers gradient = {0.9F, 0.2F};
    SparseVector sent;
    sifter.write_memory(Numbers{0, 7});
    for (const float lr : {0.0F, -0.0F}) {
      sifter.sift(gradient, sent, lr);
      EXPECT_EQ(sent.size(), 0U);
      EXPECT_EQ(sifter.memory(), (Numbers{0, 7}));
    }
    sifter.sift(gradient, sent, 0.5F);
    EXPECT_EQ(sent.values, (Numbers{0.45F, 7.1F}));
  }
  Sifter everything("threshold:lambda=0", "ef:scale=lr", {.layout = 2});
  SparseVector sent;
  everything.write_memory(Numbers{0, 7});
  everything.sift(Numbers{1, 1}, sent, 0);
  EXPECT_EQ(sent.values, (Numbers{7})) << "with lambda=0 all are sent";
}

// Each magnitude is divided by the learning rate of its step. Without memory they are all 3 here.
TEST(Threshold, MeasuresInUnitsOfTheGradient) {
  const std::unique_ptr<BareSparsifier> sparsifier = make_bare("threshold:ratio=0.5,calibrate=40", {.layout = 4});
  const Numbers gradient = {4, 3, 2, 1};
  for (int step = 0; step < 40; ++step) {
    kernels::ScaledGradient given = Gradient(gradient);
    given.scale = 0.125F * static_cast<float>(1 + step % 3);
    Numbers memory(4);
    SparseVector out;
    sparsifier->sift(given, memory, out);
  }
  EXPECT_EQ(sparsifier->vote(), 3.0F);
}

// Steps with a learning rate of 0 have nothing to measure: the calibration goes on until it has measured in as many
// steps as it was told. A step that is taken back and made again counts once.
TEST(Threshold, DoesNotMeasureInStepsWithALearningRateOfZero) {
  for (const int calibrate : {1, 3, 40}) {
    SCOPED_TRACE(calibrate);
    Sifter sifter("threshold:ratio=0.5,calibrate=" + std::to_string(calibrate), "ef:scale=lr", {.layout = 4});
    const Numbers gradient = {4, 3, 2, 1};
    SparseVector sent;
    for (int step = 0; step < calibrate; ++step) {
      for (const float lr : {0.0F, -0.0F, 0.25F}) {
        EXPECT_EQ(sifter.threshold(), std::nullopt);
        sifter.write_memory(Numbers(4));
        sifter.sift(gradient, sent, lr);
        if (step % 2 == 0) {
          sifter.undo(gradient, sent, lr);
          sifter.sift(gradient, sent, lr);
        }
      }
    }
    EXPECT_EQ(sifter.threshold(), 3.0);
  }
}

TEST(Threshold, MeasuresLambdaOverTheFirstStepsAndHoldsIt) {
  for (const char* spec :
       {"threshold:ratio=0.05,calibrate=1", "threshold:ratio=0.05,calibrate=7", "threshold:ratio=0.05,calibrate=20",
        "threshold:ratio=0.05,calibrate=31", "threshold:ratio=0.05"}) {
    for (const char* kind : {"drifting", "few_values", "few_non_zeros", "sign_flips"}) {
      ASSERT_NO_FATAL_FAILURE(check_input(spec, reference::input(kind), {.layout = kSize}, 40));
    }
  }
}

TEST(Threshold, CalibratesForOneOverTheRatioUnlessToldOtherwise) {
  const std::unique_ptr<BareSparsifier> sparsifier = make_bare("threshold:ratio=0.07", {.layout = 100});
  const Numbers gradient = reference::input("normal").make(100, 0, 1);
  int steps = 0;
  while (!sparsifier->vote() && steps < 100) {
    EXPECT_EQ(sift_afresh(*sparsifier, gradient).size(), 7U);
    ++steps;
  }
  EXPECT_EQ(steps, 15);
}

TEST(Threshold, VotesOnItsMeasuredLambdaOnce) {
  const std::unique_ptr<BareSparsifier> sparsifier = make_bare("threshold:ratio=0.5,calibrate=3", {.layout = 4});
  const Numbers gradient = {4, 3, 2, 1};
  for (int step = 0; step < 6; ++step) {
    SCOPED_TRACE(step);
    const SparseVector out = sift_afresh(*sparsifier, gradient);
    EXPECT_EQ(out.size(), step < 3 ? 2U : 1U);
    const auto lambda = sparsifier->vote();
    ASSERT_EQ(sparsifier->is_voting(), step == 2);
    ASSERT_EQ(lambda.has_value(), step == 2);
    if (!lambda) continue;
    EXPECT_EQ(*lambda, 3.0F);
    sparsifier->set_vote(3.5F);  // what the ranks agreed on
  }
  EXPECT_FALSE(make_bare("threshold:lambda=1", {.layout = 4})->vote());
  EXPECT_FALSE(make_bare("topk:k=1", {.layout = 4})->vote());
}

// It takes part in the voting without a vote: then the other ranks decide.
TEST(Threshold, HasNoVoteIfItMeasuredNothing) {
  for (const std::uint64_t dim : {0U, 4U}) {
    for (const float number : {0.0F, 3.0F}) {
      SCOPED_TRACE(::testing::Message() << dim << " entries, all but one are " << number);
      const auto sparsifier = make_bare("threshold:ratio=0.5,calibrate=3", {.layout = dim, .model_dim = 10});
      Numbers gradient(dim, number);
      if (dim > 0) gradient[2] = 7;
      for (int step = 0; step < 3; ++step) {
        EXPECT_FALSE(sparsifier->is_voting());
        sift_afresh(*sparsifier, gradient);
      }
      EXPECT_TRUE(sparsifier->is_voting());
      EXPECT_EQ(sparsifier->vote(), dim > 0 && number > 0 ? std::optional(number) : std::nullopt);
    }
  }
}

TEST(Threshold, DoesNotDependOnTheScope) {
  const Layout layout = layout_of({100, 1, 299});
  const Numbers gradient = reference::input("normal").make(kSize, 0, 3);
  for (const char* spec : {"threshold:lambda=1", "threshold:ratio=0.1,calibrate=5", "threshold:ratio=0.01,rule=sqrt"}) {
    EXPECT_EQ(sent_once(spec, gradient, {.layout = layout, .scope = Scope::layer}), sent_once(spec, gradient)) << spec;
  }
}

struct Budget {
  double total_error = 0;   // the sum over all steps of the squared norm of what was not sent
  std::size_t entries = 0;  // sent in all steps together
};

// What the sparsifier sends of each of these vectors, without error feedback.
Budget spend(const std::string& spec, const std::vector<Numbers>& recorded) {
  const std::unique_ptr<BareSparsifier> sparsifier = make_bare(spec, {.layout = kSize});
  Budget spent;
  for (const Numbers& p : recorded) {
    Numbers memory(kSize);
    SparseVector out;
    sparsifier->sift(Gradient(p), memory, out);
    spent.total_error += reference::norm2(memory);
    spent.entries += out.size();
  }
  return spent;
}

// memory + gradient of each step of a run with that sparsifier and error feedback.
std::vector<Numbers> recorded_by(const std::string& spec, const reference::Input& input, std::uint64_t seed) {
  const std::unique_ptr<BareSparsifier> sparsifier = make_bare(spec, {.layout = kSize});
  Numbers memory(kSize);
  SparseVector out;
  std::vector<Numbers> recorded;
  for (int step = 0; step < kSteps; ++step) {
    const Numbers gradient = input.make(kSize, step, seed);
    recorded.push_back(reference::accumulated(memory, gradient, 1, 1));
    sparsifier->sift(Gradient(gradient), memory, out);
  }
  return recorded;
}

// The least total error of any choice of so many entries over all steps.
double least_error(const std::vector<Numbers>& recorded, std::size_t entries) {
  Numbers all;
  for (const Numbers& p : recorded) all.insert(all.end(), p.begin(), p.end());
  std::sort(all.begin(), all.end(), [](float x, float y) { return std::fabs(x) > std::fabs(y); });
  return reference::norm2(std::span(all).subspan(entries));
}

double error_of_a_random_choice(const std::vector<Numbers>& recorded, std::size_t entries, reference::Random& random) {
  Numbers all;
  for (const Numbers& p : recorded) all.insert(all.end(), p.begin(), p.end());
  for (std::size_t i = 0; i < entries; ++i) std::swap(all[i], all[i + random.below(all.size() - i)]);
  return reference::norm2(std::span(all).subspan(entries));
}

TEST(Threshold, HasTheLeastTotalErrorOfAllChoicesOfTheSameCount) {
  reference::Random random(2021);
  for (const char* source : {"threshold:lambda=4", "topk:ratio=0.02", "dense"}) {
    for (const char* kind : {"normal", "heavy_tailed", "drifting", "few_values"}) {
      SCOPED_TRACE(std::string(source) + " on " + kind);
      const std::vector<Numbers> recorded = recorded_by(source, reference::input(kind), 4);
      const Budget spent = spend("threshold:lambda=2", recorded);
      ASSERT_GT(spent.entries, 0U);
      const double tiny = 1e-12 * least_error(recorded, 0);
      EXPECT_NEAR(spent.total_error, least_error(recorded, spent.entries), tiny);

      for (int trial = 0; trial < 5; ++trial) {
        EXPECT_LE(spent.total_error, error_of_a_random_choice(recorded, spent.entries, random) + tiny);
      }
    }
  }
}

// Top-k and a threshold that send exactly as many: lambda is set to the K-th largest magnitude of all steps.
TEST(Threshold, HasLessTotalErrorThanTopKForExactlyTheSameCount) {
  for (const char* kind : {"normal", "heavy_tailed", "drifting"}) {
    SCOPED_TRACE(kind);
    const std::vector<Numbers> recorded = recorded_by("topk:k=8", reference::input(kind), 6);
    const Budget by_topk = spend("topk:k=8", recorded);
    Numbers sizes;
    for (const Numbers& p : recorded) {
      for (const float x : p) sizes.push_back(std::fabs(x));
    }
    std::sort(sizes.begin(), sizes.end(), std::greater<>());
    std::ostringstream spec;
    spec.precision(std::numeric_limits<float>::max_digits10);
    spec << "threshold:lambda=" << sizes[by_topk.entries - 1];
    const Budget by_threshold = spend(spec.str(), recorded);
    EXPECT_EQ(by_threshold.entries, by_topk.entries);
    EXPECT_LT(by_threshold.total_error, by_topk.total_error);
  }
}

TEST(Threshold, BoundsTheMemoryByItself) {
  const std::unique_ptr<BareSparsifier> sparsifier = make_bare("threshold:lambda=2", {.layout = kSize});
  Numbers memory(kSize);
  SparseVector out;
  for (int step = 0; step < kSteps; ++step) {
    const Numbers gradient = reference::input("heavy_tailed").make(kSize, step, 8);
    sparsifier->sift(Gradient(gradient), memory, out);
    for (const float x : memory) ASSERT_LT(std::fabs(x), 2.0F);
  }
}

}  // namespace
}  // namespace sparsewire::threshold_test
