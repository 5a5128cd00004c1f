// A sparsifier with its memory: feedbacks, statistics, rounding losses, and steps that are taken back. Also with a
// Pool.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "effort.h"
#include "reference/feedback.h"
#include "sparsewire/errors.h"
#include "unit/bits.h"
#include "unit/sifters.h"
#include "unit/specs.h"
#include "unit/walk.h"

namespace sparsewire::sifter_test {
namespace {

constexpr std::size_t kSize = 3001;
constexpr int kSteps = 8;

SifterContext context_of_size(std::size_t n, int threads = 1) {
  return {.layout = n, .rank = 1, .ranks = 4, .seed = 6, .pool = pool_of(threads)};
}

float lr_of(int step) { return step < 3 ? 0.5F : 0.125F; }

class EveryFeedback : public ::testing::TestWithParam<std::string> {};  // the parameter is the sparsifier

INSTANTIATE_TEST_SUITE_P(Specs, EveryFeedback, ::testing::ValuesIn(every_spec()), spec_as_name);

void expect_totals(const reference::Totals& expected, const SiftStats& stats, double accumulated_norm2,
                   std::size_t size) {
  EXPECT_EQ(stats.step, expected.step);
  EXPECT_EQ(stats.entries, expected.entries);
  EXPECT_NEAR(stats.sent_norm2, expected.sent_norm2, 1e-12 * expected.sent_norm2);
  EXPECT_NEAR(stats.memory_norm2, expected.memory_norm2, 1e-11 * accumulated_norm2);
  EXPECT_GE(stats.memory_norm2, 0);
  if (expected.entries == size) {
    EXPECT_EQ(stats.memory_norm2, 0);
  }
  EXPECT_NEAR(stats.total_error, expected.total_error, 1e-10 * expected.total_error + 1e-11 * accumulated_norm2);
}

void expect_reference(const std::string& spec, const std::string& feedback, const reference::Input& input,
                      const SifterContext& context) {
  const std::size_t n = context.layout.dim();
  SCOPED_TRACE(feedback + " on " + input.name + ", n " + std::to_string(n));
  Sifter sifter(spec, feedback, context);
  reference::Feedback slow(spec, feedback, plain(context));
  SparseVector sent;
  for (int step = 0; step < kSteps; ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    const Numbers gradient = input.make(n, step, 21);
    sifter.sift(Gradient(gradient), sent, lr_of(step));
    const reference::Round expected = slow.sift(gradient, lr_of(step));
    ASSERT_TRUE(same_bits(expected.out, sent));
    ASSERT_TRUE(same_bits(slow.memory(), sifter.memory()));
    ASSERT_TRUE(same_bits(slow.velocity(), sifter.velocity()));
    expect_totals(slow.totals(), sifter.stats(), expected.accumulated_norm2, n);
  }
}

TEST_P(EveryFeedback, AgreesWithTheReference) {
  for (const std::string& feedback : every_feedback()) {
    for (const char* kind : {"normal", "exact", "few_non_zeros"}) {
      ASSERT_NO_FATAL_FAILURE(expect_reference(GetParam(), feedback, reference::input(kind), context_of_size(kSize)));
    }
  }
}

TEST(Sifter, AgreesWithTheReferenceOnSeveralThreads) {
  for (const std::string& feedback : every_feedback()) {
    for (const char* spec : {"topk:ratio=0.01", "randomk:ratio=0.3", "dense"}) {
      const SifterContext context = context_of_size(kSlowBuild ? 70001 : 140001, 3);
      ASSERT_NO_FATAL_FAILURE(expect_reference(spec, feedback, reference::input("exact"), context));
    }
  }
}

TEST_P(EveryFeedback, TakesAStepBackToRounding) {
  for (const std::string& feedback : every_feedback()) {
    Sifter sifter(GetParam(), feedback, context_of_size(kSize));
    SparseVector sent;
    for (int step = 0; step < kSteps; ++step) {
      SCOPED_TRACE(feedback + ", step " + std::to_string(step));
      const Numbers memory = sifter.memory();
      const Numbers velocity = sifter.velocity();
      const SiftStats stats = sifter.stats();
      const Numbers gradient = reference::input("normal").make(kSize, step, 22);
      sifter.sift(Gradient(gradient), sent, 0.5F);
      const std::size_t count = sent.size();
      sifter.undo(Gradient(gradient), sent, 0.5F);

      Numbers moved = gradient;
      for (std::size_t i = 0; i < velocity.size(); ++i) moved[i] = std::fabs(moved[i]) + std::fabs(velocity[i]);
      ASSERT_TRUE(same_to_rounding(memory, sifter.memory(), moved, 0x1p-20));
      ASSERT_TRUE(same_to_rounding(velocity, sifter.velocity(), moved, 0x1p-20));
      EXPECT_EQ(sifter.stats().step, stats.step);
      EXPECT_NEAR(sifter.stats().total_error, stats.total_error, 1e-9 * (1 + stats.total_error));

      sifter.sift(Gradient(gradient), sent, 0.5F);
      EXPECT_EQ(sent.size(), count) << "the step did not count";
      EXPECT_EQ(sifter.stats().step, stats.step + 1);
    }
  }
}

// Feedback `none` leaves nothing in the memory, but something may have been put there.
TEST(Sifter, TakesAStepBackToWhatWasInTheMemoryWithoutFeedback) {
  for (const char* spec : {"topk:k=1", "dense", "randomk:k=2"}) {
    for (const bool flushes : {false, true}) {
      SCOPED_TRACE(std::string(spec) + (flushes ? ", flushed" : ""));
      Sifter sifter(spec, "none", {.layout = 3});
      const Numbers gradient = {0.1F, 0.7F, 3};
      SparseVector sent;
      sifter.sift(gradient, sent);
      const Numbers put_there = {0.3F, 0, -5};
      sifter.write_memory(put_there);
      for (int round = 0; round < 2; ++round) {
        sifter.sift(gradient, sent);
        if (flushes) sifter.flush(sent);
        EXPECT_EQ(sifter.memory(), Numbers(3));
        sifter.undo(gradient, sent);
        EXPECT_EQ(sifter.memory(), put_there);
      }
      Sifter loaded(spec, "none", {.layout = 3});
      loaded.load(sifter.save());
      loaded.sift(gradient, sent);
      loaded.undo(gradient, sent);
      EXPECT_EQ(loaded.memory(), put_there);
      loaded.sift(gradient, sent);
      loaded.sift(gradient, sent);
      loaded.undo(gradient, sent);
      EXPECT_EQ(loaded.memory(), Numbers(3));
    }
  }
}

TEST(Sifter, UsesTheLearningRateOnlyIfItsFeedbackSaysSo) {
  Sifter sifter("topk:k=1", "ef", {.layout = 2});
  const Numbers gradient = {3, 2};
  SparseVector sent;
  sifter.sift(gradient, sent, 7);
  EXPECT_EQ(sent.values, (Numbers{3}));
  sifter.sift(gradient, sent, 7);
  EXPECT_EQ(sent.values, (Numbers{4}));
}

TEST(Sifter, HoldsLearningRateTimesGradientWhenTold) {
  Sifter sifter("topk:k=1", "ef:scale=lr", {.layout = 2});
  const Numbers gradient = {4, 2};
  SparseVector sent;
  sifter.sift(Gradient(gradient), sent, 0.5F);
  EXPECT_EQ(sent.values, (Numbers{2}));
  sifter.sift(Gradient(gradient), sent, 0.25F);  // 1 and 1 + 0.5
  EXPECT_EQ(sent.indices, (std::vector<std::uint32_t>{1}));
  EXPECT_EQ(sent.values, (Numbers{1.5F}));
}

TEST(Sifter, MeasuresTheRuleInUnitsOfTheLearningRate) {
  Sifter sifter("threshold:ratio=0.04,rule=sqrt", "ef:scale=lr", {.layout = 100});  // k = 4: lambda = lr/4
  Numbers gradient(100);
  gradient[3] = 0.25F;
  gradient[4] = 0.249F;
  SparseVector sent;
  sifter.sift(Gradient(gradient), sent, 0.5F);
  EXPECT_EQ(sent.indices, (std::vector<std::uint32_t>{3}));
  Sifter raw("threshold:ratio=0.04,rule=sqrt", "ef", {.layout = 100});
  raw.sift(Gradient(gradient), sent, 0.5F);
  EXPECT_EQ(sent.indices, (std::vector<std::uint32_t>{3})) << "the memory holds the gradient";
}

TEST(Sifter, KeepsWhatRoundingTook) {
  Sifter sifter("topk:k=2", "ef", {.layout = 4});
  const Numbers gradient = {1, 3.25F, -5.5F, 2};
  SparseVector sent;
  sifter.sift(Gradient(gradient), sent);
  sifter.keep_rounding_loss(sent, Numbers{3, -6});
  EXPECT_EQ(sifter.memory(), (Numbers{1, 0.25F, 0.5F, 2}));
  sifter.keep_rounding_loss(sent, sent.values);
  EXPECT_EQ(sifter.memory(), (Numbers{1, 0.25F, 0.5F, 2}));
}

TEST(Sifter, KeepsWhatRoundingTookOfAFullVector) {
  Sifter sifter("dense", "ef", {.layout = 3});
  const Numbers gradient = {1.5F, -2.25F, 3};
  SparseVector sent;
  sifter.sift(Gradient(gradient), sent);
  ASSERT_TRUE(sent.is_full());
  sifter.keep_rounding_loss(sent, Numbers{1, -2, 3});
  EXPECT_EQ(sifter.memory(), (Numbers{0.5F, -0.25F, 0}));
}

TEST(Sifter, DropsRoundingLossesWithoutFeedback) {
  Sifter sifter("topk:k=1", "none", {.layout = 2});
  const Numbers gradient = {1, 2.5F};
  SparseVector sent;
  sifter.sift(Gradient(gradient), sent);
  sifter.keep_rounding_loss(sent, Numbers{2});
  EXPECT_EQ(sifter.memory(), (Numbers{0, 0}));
}

TEST(Sifter, ReadsAndWritesTheMemoryOfATensorByItsName) {
  Sifter sifter("topk:k=1", "ef", {.layout = layout_of({2, 0, 3})});
  const Numbers gradient = {1, 2, 3, 4, 9};
  SparseVector sent;
  sifter.sift(Gradient(gradient), sent);
  Numbers two(2);
  Numbers three(3);
  sifter.read_memory("t0", two);
  EXPECT_EQ(two, (Numbers{1, 2}));
  sifter.read_memory("t1", {});
  sifter.read_memory("t2", three);
  EXPECT_EQ(three, (Numbers{3, 4, 0}));
  std::vector<std::uint16_t> halves(3);
  sifter.read_memory("t2", {halves.data(), NumberType::bf16, 3});
  EXPECT_EQ(halves, (std::vector<std::uint16_t>{0x4040, 0x4080, 0}));
  EXPECT_THROW(sifter.read_memory("t3", three), UsageError);
  EXPECT_THROW(sifter.read_memory("t2", two), UsageError);

  sifter.write_memory("t0", Numbers{7, -8});
  sifter.write_memory("t2", Gradient(halves.data(), NumberType::bf16, 3));
  EXPECT_EQ(sifter.memory(), (Numbers{7, -8, 3, 4, 0}));
  EXPECT_THROW(sifter.write_memory("t2", two), UsageError);
  EXPECT_THROW(sifter.write_memory("t3", two), UsageError);
  EXPECT_THROW(sifter.write_memory("t0", (Numbers{1, std::numeric_limits<float>::infinity()})), UsageError);
  EXPECT_EQ(sifter.memory(), (Numbers{7, -8, 3, 4, 0})) << "nothing has changed";
  EXPECT_EQ(sifter.layout().dim(), 5U);
  EXPECT_TRUE(sifter.velocity().empty());
}

TEST(Sifter, ObservesForItsSparsifier) {
  Sifter sifter("regtopk:k=1,mu=1", "ef", {.layout = 2, .ranks = 2});
  const Numbers gradient = {10, 1};
  SparseVector sent;
  sifter.sift(Gradient(gradient), sent);
  sifter.observe(sent, Numbers{0});
  sifter.sift(Gradient(gradient), sent);
  EXPECT_EQ(sent.indices, (std::vector<std::uint32_t>{1}));
}

TEST(Sifter, PutsTheVoteOfItsSparsifierForward) {
  Sifter sifter("threshold:ratio=0.5,calibrate=1", "none", {.layout = 4});
  const Numbers gradient = {4, 3, 2, 1};
  SparseVector sent;
  sifter.sift(Gradient(gradient), sent);
  ASSERT_TRUE(sifter.vote());
  EXPECT_EQ(*sifter.vote(), 3.0F);
  sifter.set_vote(1.5F);
  sifter.sift(Gradient(gradient), sent);
  EXPECT_EQ(sent.size(), 3U);
}

// Where no entry is zero; a given lambda says nothing about the number.
TEST(Sifter, ExpectsAsManyEntriesAsItSendsAfterTheWarmUp) {
  std::vector<std::string> specs = every_spec();
  for (const char* more :
       {"topk:k=7", "topk:k=3,chunk=100", "topk:ratio=0.02,chunk=64,dense_below=50", "rtopk:k=9,dense_below=50",
        "randomk:ratio=0.3,dense_below=50", "threshold:ratio=0.05,dense_below=50", "regtopk:k=9,dense_below=50"}) {
    specs.emplace_back(more);
  }
  for (const std::string& spec : specs) {
    if (name_of(spec) == "threshold" && spec.find("ratio") == std::string::npos) continue;
    if (spec.find("calibrate") != std::string::npos || spec.find("rule") != std::string::npos) continue;
    for (const Scope scope : {Scope::model, Scope::layer}) {
      SCOPED_TRACE(spec + (scope == Scope::model ? ", model" : ", layer"));
      Sifter sifter(spec, "none", {.layout = layout_of({300, 0, 900, 7, 1}), .scope = scope});
      Numbers gradient = reference::input("normal").make(1208, 0, 24);
      for (float& number : gradient) number = number == 0 ? 1 : number;
      SparseVector sent;
      for (int step = 0; step < 5; ++step) sifter.sift(gradient, sent);
      EXPECT_EQ(static_cast<double>(sent.size()), sifter.expected_entries());
    }
  }
  EXPECT_EQ(Sifter("threshold:lambda=1", "ef", {.layout = 100}).expected_entries(), 0);
}

TEST(Sifter, RefusesSizesThatDiffer) {
  for (const char* feedback : {"ef", "none", "momentum:m=0.9,clip=1"}) {
    Sifter sifter("topk:k=1", feedback, {.layout = 10});
    SparseVector sent;
    EXPECT_THROW(sifter.sift(Gradient(Numbers(9, 1.0F)), sent), UsageError);
    EXPECT_THROW(sifter.sift(Gradient(Numbers(11, 1.0F)), sent), UsageError);
    EXPECT_EQ(sifter.memory(), Numbers(10));
    EXPECT_EQ(sifter.stats().step, 0U);
  }
}

TEST(Sifter, CanBeMovedWithItsMemoryAndStatistics) {
  Sifter first("topk:k=1", "ef", {.layout = 2});
  const Numbers gradient = {3, 2};
  SparseVector sent;
  first.sift(Gradient(gradient), sent);
  Sifter second = std::move(first);
  EXPECT_EQ(second.memory(), (Numbers{0, 2}));
  EXPECT_EQ(second.stats().step, 1U);
}

// The sum of what was sent plus what stays is the sum of the gradients, with numbers that add without rounding.
TEST_P(EveryFeedback, LosesNothingOverManySteps) {
  Sifter sifter(GetParam(), "ef", context_of_size(kSize));
  Numbers came(kSize);
  Numbers sent_in_all(kSize);
  SparseVector sent;
  for (int step = 0; step < 30; ++step) {
    const Numbers gradient = reference::exact_numbers(kSize, step, 23);
    sifter.sift(Gradient(gradient), sent);
    for (std::size_t i = 0; i < kSize; ++i) came[i] += gradient[i];
    for (std::size_t i = 0; i < sent.size(); ++i) sent_in_all[sent.index(i)] += sent.values[i];
    sifter.observe(sent, made_up_update(sent, context_of_size(kSize)));
  }
  const Numbers memory = sifter.memory();
  for (std::size_t i = 0; i < kSize; ++i) sent_in_all[i] += memory[i];
  EXPECT_EQ(sent_in_all, came);
}

TEST(Sifter, UndoesTheLastStepAndNoOther) {
  for (const char* const spec : {"topk:k=1", "dense"}) {
    Sifter sifter(spec, "ef", {.layout = 4, .first_step = 10});
    const Numbers gradient = {1, 2, 3, 4};
    const Numbers broken = {1, 2, NAN, 4};
    SparseVector sent;
    EXPECT_THROW(sifter.undo(gradient, sent), UsageError) << "no step yet";
    sifter.sift(gradient, sent);
    const SparseVector first = sent;
    sifter.undo(gradient, first);
    EXPECT_THROW(sifter.undo(gradient, first), UsageError) << "twice";
    sifter.sift(gradient, sent);
    EXPECT_THROW(sifter.sift(broken, sent), BadGradient);
    EXPECT_THROW(sifter.undo(gradient, first), UsageError) << "after a step that was refused";
    EXPECT_EQ(sifter.stats().step, 11U);
  }
}

TEST(Sifter, RefusesVectorsThatAreNotOfItsModel) {
  Sifter sifter("regtopk:k=1,mu=1", "ef", {.layout = 4});
  const Numbers one = {1};
  const SparseVector outside{400, {300}, {1}};
  const SparseVector beyond{4, {4}, {1}};
  const SparseVector too_few_indices{4, {1}, {1, 2}};
  const SparseVector descending{4, {2, 1}, {1, 1}};
  for (const SparseVector* const vector : {&outside, &beyond, &too_few_indices, &descending}) {
    EXPECT_THROW(sifter.keep_rounding_loss(*vector, vector->values), UsageError);
    EXPECT_THROW(sifter.observe(*vector, Numbers(vector->size(), 1.0F)), UsageError);
  }
  EXPECT_THROW(sifter.keep_rounding_loss({4, {1}, {1}}, Numbers{INFINITY}), UsageError);
  EXPECT_THROW(sifter.keep_rounding_loss({4, {1}, {1}}, Numbers{1, 2}), UsageError);
  const Numbers memory = sifter.memory();
  EXPECT_EQ(std::count(memory.begin(), memory.end(), 0.0F), 4);
  EXPECT_THROW(sifter.observe({4, {1}, {1}}, {}), UsageError);
}

TEST(Sifter, RefusesALearningRateThatIsNotFinite) {
  Sifter sifter("topk:k=1", "ef:scale=lr", {.layout = 1});
  const Numbers gradient = {1};
  SparseVector sent;
  EXPECT_THROW(sifter.sift(gradient, sent, NAN), UsageError);
  EXPECT_THROW(sifter.sift(gradient, sent, INFINITY), UsageError);
  EXPECT_EQ(sifter.stats().step, 0U);
}

// One that continues another one, under the same specs, does what that would have done.
TEST_P(EveryFeedback, ContinuesFromAnotherAtAnyStep) {
  constexpr std::size_t kEntries = 400;
  const auto step = [](Sifter& sifter, int number) {
    SparseVector sent;
    sifter.sift(reference::input("normal").make(kEntries, number, 3), sent, 0.5F);
    Numbers update(sent.values);
    for (std::size_t i = 0; i < update.size(); i += 2) update[i] *= -0.1F;
    sifter.observe(sent, update);
    if (sifter.is_voting()) sifter.set_vote(1.25F);
    return sent;
  };
  for (const std::string& feedback : every_feedback()) {
    for (int half = 0; half < 5; ++half) {
      SCOPED_TRACE(feedback + " after " + std::to_string(half) + " steps");
      Sifter first(GetParam(), feedback, {.layout = kEntries, .ranks = 2});
      for (int t = 0; t < half; ++t) step(first, t);
      Sifter second(GetParam(), feedback, {.layout = kEntries, .ranks = 2});
      step(second, 99);  // is replaced
      second.continue_from(first);
      EXPECT_FALSE(second.can_undo());
      for (int t = half; t < half + 4; ++t) {
        const SparseVector expected = step(first, t);
        ASSERT_TRUE(same_bits(expected, step(second, t))) << "step " << t;
        ASSERT_EQ(first.memory(), second.memory());
        ASSERT_EQ(first.save(), second.save());
      }
    }
  }
}

}  // namespace
}  // namespace sparsewire::sifter_test
