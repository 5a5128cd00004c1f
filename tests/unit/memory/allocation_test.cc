// In the steady state a step allocates nothing, with and without a Pool. This program counts every call of operator
// new.
#include <gtest/gtest.h>

#include "effort.h"
#include "unit/memory/counted_memory.h"
#include "unit/sifters.h"
#include "unit/specs.h"
#include "unit/walk.h"

namespace sparsewire::allocation_test {
namespace {

constexpr std::size_t kSize = 300007;
constexpr int kWarmUp = 30;
constexpr int kMeasured = 30;

// Gradients with a part that drifts slowly and new noise in each step, computed in place.
class Gradients {
 public:
  Gradients()
      : drift_(reference::input("normal").make(kSize, 0, 41)),
        noise_(reference::input("normal").make(kSize + kShifts, 1, 41)),
        now_(kSize) {}

  Gradient at(int step) {
    const std::size_t shift = static_cast<std::size_t>(step) * 7919 % kShifts;
    const float turn = 0.2F * (1 - 0.001F * static_cast<float>(step));
    for (std::size_t i = 0; i < kSize; ++i) now_[i] = turn * drift_[i] + noise_[i + shift];
    return Gradient(now_);
  }

 private:
  static constexpr std::size_t kShifts = 10007;
  Numbers drift_;
  Numbers noise_;
  Numbers now_;
};

long allocations_of(const std::string& spec, const std::string& feedback, int threads) {
  Gradients gradients;
  Sifter sifter(spec, feedback, {.layout = kSize, .ranks = 4, .pool = pool_of(threads)});
  SparseVector sent;
  Numbers update(kSize);
  long before = 0;
  for (int step = 0; step < kWarmUp + kMeasured; ++step) {
    if (step == kWarmUp) before = counted_memory.allocations.load();
    sifter.sift(gradients.at(step), sent);
    for (std::size_t i = 0; i < sent.size(); ++i) update[i] = 0.25F * sent.values[i];
    sifter.observe(sent, std::span(update).first(sent.size()));
  }
  return counted_memory.allocations.load() - before;
}

class Allocations : public ::testing::TestWithParam<std::string> {};  // the spec of a sparsifier

// One of each sparsifier, and those whose lists grow in another way.
std::vector<std::string> specs() {
  std::vector<std::string> all = example_specs();
  all.insert(all.end(),
             {"topk:ratio=0.3,chunk=1000", "topk:ratio=1", "randomk:ratio=0.6,seed=99", "rtopk:ratio=0.1,r_ratio=1",
              "threshold:ratio=0.05,calibrate=1", "threshold:ratio=0.05,calibrate=2"});
  return long_tests() ? every_spec() : all;
}

INSTANTIATE_TEST_SUITE_P(Specs, Allocations, ::testing::ValuesIn(specs()), spec_as_name);

TEST(AllocationCount, Counts) {
  const long before = counted_memory.allocations.load();
  void* const memory = ::operator new(100);  // called by name: a compiler may leave out what a vector would allocate
  EXPECT_EQ(counted_memory.allocations.load(), before + 1);
  ::operator delete(memory);
}

TEST_P(Allocations, AreNoneInTheSteadyState) {
  EXPECT_EQ(allocations_of(GetParam(), "ef", 1), 0) << "one thread";
  EXPECT_EQ(allocations_of(GetParam(), "ef:decay=0.95,scale=lr", 3), 0) << "three threads";
}

// Every allocation of a first step fails once: then the memory is as it was, up to rounding, and the step can be
// repeated.
TEST_P(Allocations, ThatFailLoseNothing) {
  Gradients gradients;
  const Gradient gradient = gradients.at(0);
  const Numbers owed = reference::input("normal").make(kSize, 2, 43);
  for (const char* const feedback : {"ef", "momentum:m=0.9"}) {
    SCOPED_TRACE(feedback);
    std::vector<std::size_t> expected;  // entries of two steps of which none fails
    int failures = 0;
    for (bool failed = true; failed;) {
      Sifter sifter(GetParam(), feedback, {.layout = layout_of({5, 100000, 200002}), .ranks = 4, .pool = pool_of(2)});
      sifter.write_memory(owed);
      SparseVector sent;
      counted_memory.left_until_failure = failures;
      try {
        sifter.sift(gradient, sent);
        failed = false;
      } catch (const std::bad_alloc&) {
        ++failures;
      }
      counted_memory.left_until_failure = -1;
      if (!failed) break;
      if (expected.empty()) {
        Sifter other(GetParam(), feedback, {.layout = layout_of({5, 100000, 200002}), .ranks = 4, .pool = pool_of(2)});
        other.write_memory(owed);
        SparseVector entries;
        for (int step = 0; step < 2; ++step) {
          other.sift(gradient, entries);
          expected.push_back(entries.size());
        }
      }
      ASSERT_EQ(sent.size(), 0U);
      ASSERT_EQ(sifter.stats().step, 0U);
      const std::vector<float> memory = sifter.memory();
      for (std::size_t i = 0; i < kSize; ++i) ASSERT_NEAR(memory[i], owed[i], 2e-6) << i << ", " << failures;
      for (const std::size_t entries : expected) {
        sifter.sift(gradient, sent);
        // A threshold may pass some more or less, because of the rounding.
        ASSERT_NEAR(static_cast<double>(sent.size()), static_cast<double>(entries), 3) << failures;
      }
      ASSERT_EQ(sifter.stats().step, 2U);
    }
    EXPECT_GT(failures, 0);
  }
}

// What a step that runs out of memory leaves behind, for a model of several units that each need more room than those
// before: so some fail in the first unit, some in the last.
class OutOfMemoryInSomeUnit : public ::testing::TestWithParam<std::string> {  // the spec of a sparsifier
 protected:
  static Sifter make(const std::string& feedback) {
    Sifter sifter(GetParam(), feedback, {.layout = kLayout, .scope = Scope::layer, .ranks = 4});
    sifter.write_memory(owed());
    return sifter;
  }
  static const Numbers& owed() {
    static const Numbers numbers = reference::input("normal").make(kLayout.dim(), 2, 43);
    return numbers;
  }
  static Numbers gradient() { return reference::input("normal").make(kLayout.dim(), 0, 41); }

  // Calls look(memory) for each allocation of a first step, after it has failed. Returns how many there are.
  template <class Step, class Look>
  static int fail_each(const std::string& feedback, const Step& step, const Look& look) {
    for (int number = 0;; ++number) {
      SCOPED_TRACE(feedback + ", allocation " + std::to_string(number));
      Sifter sifter = make(feedback);
      SparseVector sent;
      counted_memory.left_until_failure = number;
      bool has_failed = false;
      try {
        step(sifter, sent);
      } catch (const std::bad_alloc&) {
        has_failed = true;
      }
      counted_memory.left_until_failure = -1;
      if (!has_failed) return number;
      EXPECT_EQ(sent.size(), 0U);
      look(sifter.memory());
    }
  }

  inline static const Layout kLayout = layout_of({3, 700, 5000, 30, 20000});
};

INSTANTIATE_TEST_SUITE_P(Specs, OutOfMemoryInSomeUnit,
                         ::testing::Values("topk:ratio=0.3", "topk:ratio=0.3,dense_below=31",
                                           "topk:ratio=0.3,chunk=500", "rtopk:ratio=0.3", "regtopk:ratio=0.3"),
                         spec_as_name);

// Each entry is as it was, or as after a step that is taken back.
TEST_P(OutOfMemoryInSomeUnit, LosesNothing) {
  const Numbers given = gradient();
  const Numbers& before = owed();
  for (const char* const feedback : {"ef", "ef:decay=0.9"}) {
    Sifter undone = make(feedback);
    SparseVector sent;
    undone.sift(given, sent);
    undone.undo(given, sent);
    const Numbers restored = undone.memory();
    const int failures = fail_each(
        feedback, [&](Sifter& sifter, SparseVector& out) { sifter.sift(given, out); },
        [&](const Numbers& memory) {
          for (std::size_t i = 0; i < memory.size(); ++i) {
            ASSERT_TRUE(memory[i] == before[i] || memory[i] == restored[i]) << i;
          }
        });
    EXPECT_GT(failures, 5);
  }
}

// A sum is taken back exactly.
TEST_P(OutOfMemoryInSomeUnit, LosesNothingOfASum) {
  const Numbers given = gradient();
  const Numbers& before = owed();
  SparseVector sum;
  sum.clear(kLayout.dim());
  for (std::uint32_t i = 0; i < kLayout.dim(); i += 5) {
    sum.indices.push_back(i);
    sum.values.push_back(given[i]);
  }
  const int failures = fail_each(
      "ef", [&](Sifter& sifter, SparseVector& out) { sifter.sift(sum, out); },
      [&](const Numbers& memory) { EXPECT_TRUE(memory == before); });
  EXPECT_GT(failures, 5);
}

TEST(AllocationsOfFeedback, AreNoneInTheSteadyState) {
  for (const std::string& feedback : every_feedback()) {
    EXPECT_EQ(allocations_of("topk:ratio=0.01", feedback, 1), 0) << feedback;
  }
}

}  // namespace
}  // namespace sparsewire::allocation_test
