// Validation and test data: what is held back, that it never enters a gradient, and what its numbers are called.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "data/hold_back.h"
#include "data/random.h"
#include "loop/evaluation.h"
#include "loop/loop.h"
#include "problems/precise_problem.h"
#include "sparsewire/errors.h"
#include "unit/folder.h"
#include "unit/trained.h"

namespace sparsewire::train::held_back_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(HoldBack, DrawsAShareOfTheSamples) {
  for (const std::size_t samples : {2U, 3U, 10U, 1001U}) {
    for (const double share : {0.001, 0.1, 0.4}) {
      SCOPED_TRACE(std::to_string(samples) + " " + std::to_string(share));
      const HeldBack parts = hold_back(samples, share, 5);
      const auto expected = std::max(1.0, std::floor(share * static_cast<double>(samples) + 0.5));
      EXPECT_EQ(parts.validation.size(), static_cast<std::size_t>(expected));
      EXPECT_TRUE(std::is_sorted(parts.training.begin(), parts.training.end()));
      EXPECT_TRUE(std::is_sorted(parts.validation.begin(), parts.validation.end()));
      std::set<std::uint32_t> all(parts.training.begin(), parts.training.end());
      all.insert(parts.validation.begin(), parts.validation.end());
      EXPECT_EQ(all.size(), samples);
      EXPECT_EQ(*all.rbegin(), samples - 1);
      EXPECT_EQ(hold_back(samples, share, 5).validation, parts.validation);
    }
  }
  EXPECT_NE(hold_back(1001, 0.1, 5).validation, hold_back(1001, 0.1, 6).validation);
  EXPECT_TRUE(hold_back(7, 0, 5).validation.empty());
  EXPECT_EQ(hold_back(7, 0, 5).training.size(), 7U);
  EXPECT_THROW(hold_back(1, 0.1, 5), UsageError);
  EXPECT_THROW(hold_back(4, 0.99, 5), UsageError);
}

// Each sample is held back as often as any other: 300 times on average, with a standard deviation of 16.
TEST(HoldBack, HasNoFavourites) {
  std::vector<int> times(20);
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    for (const std::uint32_t sample : hold_back(times.size(), 0.15, seed).validation) ++times[sample];
  }
  for (const int count : times) EXPECT_NEAR(count, 300, 80);
}

// A line of a LIBSVM file with five features.
std::string line(std::uint64_t number, int classes, double factor) {
  Draws draws(77, Use::data, 3, number);
  std::string text = std::to_string(draws.below(static_cast<std::uint32_t>(classes)));
  for (int i = 1; i <= 5; ++i) text += " " + std::to_string(i) + ":" + std::to_string(factor * draws.normal());
  return text + "\n";
}

// Samples whose numbers are in `poisoned` have other labels and values.
std::string file_of(std::uint64_t samples, int classes, const std::vector<std::uint32_t>& poisoned) {
  std::string text;
  for (std::uint32_t sample = 0; sample < samples; ++sample) {
    const bool is_poisoned = std::find(poisoned.begin(), poisoned.end(), sample) != poisoned.end();
    text += is_poisoned ? line(sample + 1000, classes, 30) : line(sample, classes, 1);
  }
  return text;
}

TrainConfig small(const Folder& folder, const std::string& split) {
  TrainConfig config;
  config.problem = "logreg:intercept=true,batch=3";
  config.data = folder / "train";
  config.test_data = folder / "test";
  config.validation = 0.2;
  config.split = split;
  config.workers = 3;
  config.sparsifier = "topk:ratio=0.3";
  config.steps = 12;
  config.seed = 4;
  config.eval_train = true;
  return config;
}

// Poison what must not be trained with: the evaluation sees it, the weights do not. Poison one sample more, and they
// do.
TEST(HeldBackData, NeverEnterAGradient) {
  constexpr std::uint64_t kSamples = 60;
  for (const int classes : {2, 3}) {
    for (const char* split : {"", "round_robin", "iid", "shards:per_worker=2", "dirichlet:alpha=0.5"}) {
      SCOPED_TRACE(std::string(split) + ", classes: " + std::to_string(classes));
      const Folder folder;
      const TrainConfig config = small(folder, split);
      const HeldBack parts = hold_back(kSamples, config.validation, config.seed);
      folder.write("train", file_of(kSamples, classes, {}));
      folder.write("test", file_of(20, classes, {}));
      const Result clean = trained(config);
      folder.write("test", file_of(20, classes, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
      const Result other_test = trained(config);
      EXPECT_EQ(other_test.weights_crc32c, clean.weights_crc32c);
      EXPECT_NE(other_test.evaluation->find("test_loss"), clean.evaluation->find("test_loss"));
      EXPECT_EQ(other_test.evaluation->find("validation_loss"), clean.evaluation->find("validation_loss"));
      folder.write("train", file_of(kSamples, classes, parts.validation));
      const Result other_validation = trained(config);
      EXPECT_EQ(other_validation.weights_crc32c, clean.weights_crc32c);
      EXPECT_EQ(other_validation.evaluation->find("train_objective"), clean.evaluation->find("train_objective"));
      EXPECT_NE(other_validation.evaluation->find("validation_loss"), clean.evaluation->find("validation_loss"));
      std::vector<std::uint32_t> one_more = parts.validation;
      one_more.push_back(parts.training[7]);
      folder.write("train", file_of(kSamples, classes, one_more));
      EXPECT_NE(trained(config).weights_crc32c, clean.weights_crc32c);
    }
  }
}

// The data of mlp are drawn, so sums say who has what: the batches of all workers are the training samples, and with
// those held back they are all samples.
TEST(HeldBackData, OfMlpNeverEnterAGradient) {
  const char* const spec = "mlp:inputs=6,hidden=5,classes=3,samples=90,held_back=40,batch=0";
  constexpr int kWorkers = 4;
  const auto problem = make_problem(spec, {.workers = kWorkers, .seed = 9, .validation = 0.2});
  const auto whole = make_problem(spec, {.workers = kWorkers, .seed = 9});
  std::vector<float> weights(problem->layout().dim());
  std::vector<float> gradient(weights.size());
  problem->initial_weights(weights);
  double sum = 0;
  std::uint64_t samples = 0;
  for (int worker = 0; worker < kWorkers; ++worker) {
    const auto own = problem->samples_of(worker);
    sum += problem->gradient(worker, 0, weights, gradient) * static_cast<double>(own);
    samples += own;
  }
  EXPECT_EQ(samples, 72U);
  const double train = problem->evaluate(Part::train, weights).loss;
  const double validation = problem->evaluate(Part::validation, weights).loss;
  EXPECT_NEAR(sum / 72, train, 1e-6);
  EXPECT_NEAR((72 * train + 18 * validation) / 90, whole->evaluate(Part::train, weights).loss, 1e-6);
  EXPECT_NE(train, validation);
  EXPECT_EQ(problem->evaluate(Part::test, weights).loss, whole->evaluate(Part::test, weights).loss);
  EXPECT_FALSE(whole->has(Part::validation));
}

std::vector<std::string> names(const Evaluation& evaluation) {
  std::vector<std::string> all;
  for (const Measurement& one : evaluation.numbers) all.push_back(one.name);
  return all;
}

TEST(Evaluation, CallsItsNumbersByTheirData) {
  const auto names_of = [](const std::string& spec, const ProblemPlace& place, bool with_train) {
    const auto problem = make_problem(spec, place);
    std::vector<float> weights(problem->layout().dim());
    problem->initial_weights(weights);
    return names(evaluate(*problem, weights, with_train));
  };
  const std::string logreg = "logreg:dim=5,samples=30";
  EXPECT_THAT(names_of("linreg", {}, false), ElementsAre("train_loss", "distance"));
  EXPECT_THAT(names_of("regtopk_toy", {}, false), ElementsAre("train_loss"));
  EXPECT_THAT(names_of(logreg, {}, false), ElementsAre("train_loss", "train_objective", "train_accuracy"));
  EXPECT_THAT(names_of(logreg, {.validation = 0.1}, false), ElementsAre("validation_loss", "validation_accuracy"));
  EXPECT_THAT(names_of(logreg + ",held_back=9", {.validation = 0.1}, true),
              ElementsAre("train_loss", "train_objective", "train_accuracy", "validation_loss", "validation_accuracy",
                          "test_loss", "test_accuracy"));
  EXPECT_THAT(names_of("mlp:samples=20,held_back=5", {}, false), ElementsAre("test_loss", "test_accuracy"));
  EXPECT_EQ(headline_of(*make_problem(logreg, {})).loss, "train_loss");
  EXPECT_EQ(headline_of(*make_problem(logreg, {.validation = 0.1})).metric, "validation_accuracy");
  EXPECT_EQ(headline_of(*make_problem(logreg + ",held_back=9", {.validation = 0.1})).loss, "test_loss");
}

TEST(Evaluation, HasTheL2TermApart) {
  const auto made = make_problem("logreg:dim=5,samples=30,l2=0.5", {});
  const std::vector<float> weights{1, -2, 0, 0, 3};
  const Score score = made->evaluate(Part::train, weights);
  EXPECT_DOUBLE_EQ(score.objective, score.loss + 0.25 * 14);
}

TEST(TestData, AreNumberedLikeTheTrainingData) {
  const Folder folder;
  folder.write("train", "2 1:1\n-1 2:1\n7 1:1 2:1\n");
  folder.write("test", "+7.0 1:1 2:1 99:5\n");  // the last feature has no weight
  folder.write("strange", "7 1:1\n8 1:1\n");
  const auto problem = make_problem("logreg", {.data = folder / "train", .test_data = folder / "test"});
  std::vector<float> weights(6);  // two features of three classes
  weights[2] = weights[5] = 1;    // -1 < 2 < 7: the last class
  EXPECT_EQ(problem->evaluate(Part::test, weights).metric, 1);
  EXPECT_NEAR(problem->evaluate(Part::test, weights).loss, std::log(1 + 2 * std::exp(-2.0)), 1e-12);
  const auto complaint = [&](const std::string& spec, const ProblemPlace& place) -> std::string {
    try {
      make_problem(spec, place);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(complaint("logreg", {.data = folder / "train", .test_data = folder / "strange"}),
              HasSubstr("has the label '8', which the training data have not"));
  EXPECT_THAT(complaint("logreg", {.test_data = folder / "test"}), HasSubstr("--test-data needs --data"));
  EXPECT_THAT(complaint("mlp", {.test_data = folder / "test"}), HasSubstr("leave --test-data out"));
  EXPECT_THAT(complaint("linreg", {.validation = 0.1}), HasSubstr("leave --validation out"));
}

}  // namespace
}  // namespace sparsewire::train::held_back_test
