// The installed tests for sparsifiers: every sparsifier of the library passes them, and wrong ones do not.
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <stdexcept>

#include "sparsewire/testing/sparsifier_conformance.h"
#include "unit/specs.h"

namespace sparsewire::conformance_test {
namespace {

using conformance::SparsifierCase;

std::vector<SparsifierCase> every_case() {
  std::vector<SparsifierCase> cases;
  for (const std::string& spec : every_spec()) {
    const std::string name = name_of(spec);
    cases.push_back({.spec = spec, .sends_zeros = name == "dense" || name == "randomk"});
  }
  return cases;
}

// A right one, from which the wrong ones below are derived. It sends every third entry, and sometimes one
// more, which depends on the steps before.
struct EveryThird : Sparsifier {
  SparsifierTraits traits() const override { return {.observes = true, .entries_vary = true, .remembers = true}; }
  void choose(std::span<const float> accumulated, std::uint64_t step, std::vector<std::uint32_t>& chosen) override {
    before = learned;
    for (std::size_t i = step % 3; i < accumulated.size(); i += 3) chosen.push_back(static_cast<std::uint32_t>(i));
    const std::size_t other = (step + 1) % 3;
    if (learned % 2 == 1 && other < accumulated.size()) chosen.push_back(static_cast<std::uint32_t>(other));
    std::sort(chosen.begin(), chosen.end());
    learned = learned * 5 + static_cast<std::uint32_t>(accumulated.empty() ? 0 : std::abs(accumulated[0]) * 4);
  }
  void rewind() override { learned = before; }
  void serialize(State& state) override { state.value("learned", learned); }

  std::uint32_t learned = 1;
  std::uint32_t before = 1;
};

template <class Made>
Registration register_wrong() {
  return register_sparsifier({"wrong", "not what it should", "wrong"},
                             [](Spec&, const SifterContext& context) -> std::unique_ptr<Sparsifier> {
                               auto made = std::make_unique<Made>();
                               if constexpr (requires { made->context; }) made->context = context;
                               return made;
                             });
}

// What the test says about it; empty if it passes.
std::string complaint(conformance::Promise promise, const SparsifierCase& tested) {
  testing::TestPartResultArray results;
  {
    const testing::ScopedFakeTestPartResultReporter reporter(
        testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &results);
    conformance::check(promise, tested);
  }
  std::string words;
  for (int i = 0; i < results.size(); ++i) words += std::string(results.GetTestPartResult(i).message()) + "\n";
  return words;
}

template <class Made>
void expect_complaint(conformance::Promise promise, const std::string& words) {
  const Registration registration = register_wrong<Made>();
  const std::string found = complaint(promise, {.spec = "wrong"});
  EXPECT_NE(found.find(words), std::string::npos) << "found: " << found;
}

TEST(SparsifierConformanceItself, FindsNothingWrongWithARightOne) {
  const Registration registration = register_wrong<EveryThird>();
  for (const conformance::Promise promise :
       {conformance::is_listed_and_its_example_works, conformance::sends_ascending_indices, conformance::loses_nothing,
        conformance::is_deterministic, conformance::works_on_several_threads, conformance::takes_a_step_back,
        conformance::takes_a_step_back_to_rounding, conformance::goes_on_after_save_and_load,
        conformance::goes_on_with_other_tensors, conformance::has_the_traits_it_names,
        conformance::refuses_bad_gradients, conformance::takes_half_precision, conformance::may_be_told_the_update,
        conformance::votes_in_the_same_step_on_all_ranks, conformance::serves_as_downlink}) {
    EXPECT_EQ(complaint(promise, {.spec = "wrong"}), "");
  }
}

TEST(SparsifierConformanceItself, FindsWrongIndices) {
  struct Unsorted : EveryThird {
    void choose(std::span<const float> accumulated, std::uint64_t step, std::vector<std::uint32_t>& chosen) override {
      EveryThird::choose(accumulated, step, chosen);
      std::reverse(chosen.begin(), chosen.end());
    }
  };
  expect_complaint<Unsorted>(conformance::sends_ascending_indices, "the indices must ascend");
  struct OutOfRange : EveryThird {
    void choose(std::span<const float> accumulated, std::uint64_t, std::vector<std::uint32_t>& chosen) override {
      chosen.push_back(static_cast<std::uint32_t>(accumulated.size()));
    }
  };
  expect_complaint<OutOfRange>(conformance::sends_ascending_indices, "chose index 0 of a model of 0 entries");
  struct NeedsTwo : EveryThird {
    void choose(std::span<const float> accumulated, std::uint64_t, std::vector<std::uint32_t>& chosen) override {
      if (accumulated.empty()) return;
      chosen = {0, 1};
    }
  };
  expect_complaint<NeedsTwo>(conformance::sends_ascending_indices, "chose index 1 of a model of 1 entries");
}

TEST(SparsifierConformanceItself, FindsZerosThatAreSent) {
  EXPECT_NE(complaint(conformance::sends_ascending_indices, {.spec = "dense"}).find("entries that are zero were sent"),
            std::string::npos);
}

TEST(SparsifierConformanceItself, FindsChance) {
  struct Random : EveryThird {
    Random() {
      static std::atomic<std::uint32_t> made = 0;
      learned = made++;
    }
  };
  expect_complaint<Random>(conformance::is_deterministic, "two with the same gradients: other entries are sent");
  expect_complaint<Random>(conformance::works_on_several_threads, "when ranks run at the same time");
}

TEST(SparsifierConformanceItself, FindsAStepThatIsNotTakenBack) {
  struct WithoutRewind : EveryThird {
    void rewind() override {}
  };
  expect_complaint<WithoutRewind>(conformance::takes_a_step_back, "left a trace in the state");
  struct ForgetsUnsaved : WithoutRewind {  // nor does it show in the state
    void serialize(State&) override {}
  };
  expect_complaint<ForgetsUnsaved>(conformance::takes_a_step_back, "other entries are sent");
  struct ObservesForGood : EveryThird {
    void observe(const SparseVector&, std::span<const float>) override { ++observed; }
    void serialize(State& state) override {
      EveryThird::serialize(state);
      state.value("observed", observed);
    }
    std::uint32_t observed = 0;
  };
  expect_complaint<ObservesForGood>(conformance::takes_a_step_back, "undo() after sift() and observe() left a trace");
}

TEST(SparsifierConformanceItself, FindsAStateThatIsNotSaved) {
  struct Unsaved : EveryThird {
    void serialize(State&) override {}
  };
  expect_complaint<Unsaved>(conformance::goes_on_after_save_and_load, "other entries are sent");
  struct SavedTwice : EveryThird {
    void serialize(State& state) override {
      state.value("learned", learned);
      if (!state.saving()) ++learned;
    }
  };
  expect_complaint<SavedTwice>(conformance::goes_on_after_save_and_load, "saved again, the state is another one");
}

TEST(SparsifierConformanceItself, FindsIndicesThatAreNotRemapped) {
  struct SendsTheSameAgain : EveryThird {
    void choose(std::span<const float> accumulated, std::uint64_t, std::vector<std::uint32_t>& chosen) override {
      if (last.empty() && !accumulated.empty()) last.push_back(static_cast<std::uint32_t>(accumulated.size() - 1));
      chosen = last;
    }
    void serialize(State& state) override { state.array("last", last); }
    std::vector<std::uint32_t> last;
  };
  expect_complaint<SendsTheSameAgain>(conformance::goes_on_with_other_tensors,
                                      "chose index 1000 of a model of 1000 entries");
}

TEST(SparsifierConformanceItself, FindsWrongTraits) {
  struct HidesItsState : EveryThird {
    SparsifierTraits traits() const override { return {.entries_vary = true}; }
  };
  expect_complaint<HidesItsState>(conformance::has_the_traits_it_names, "traits().remembers is false");
  struct HidesItsCount : EveryThird {
    SparsifierTraits traits() const override { return {.remembers = true}; }
  };
  expect_complaint<HidesItsCount>(conformance::has_the_traits_it_names, "traits().entries_vary is false");
  struct ChangesItsMind : EveryThird {
    SparsifierTraits traits() const override {
      return {.observes = learned != 1, .entries_vary = true, .remembers = true};
    }
  };
  expect_complaint<ChangesItsMind>(conformance::has_the_traits_it_names, "traits() returns something else");
  struct ExpectsNonsense : EveryThird {
    double expected_entries() const override { return std::nan(""); }
  };
  expect_complaint<ExpectsNonsense>(conformance::has_the_traits_it_names, "expected_entries() returned nan");
}

TEST(SparsifierConformanceItself, FindsAnObserverThatFails) {
  struct NeedsAnUpdate : EveryThird {
    void observe(const SparseVector&, std::span<const float> update) override {
      if (update.empty()) throw std::out_of_range("there is no first number");
    }
  };
  expect_complaint<NeedsAnUpdate>(conformance::may_be_told_the_update, "there is no first number");
}

TEST(SparsifierConformanceItself, FindsRanksThatVoteAlone) {
  struct VotesOnRankOne : EveryThird {
    bool is_voting() const noexcept override { return context.rank == 1; }
    SifterContext context;
  };
  expect_complaint<VotesOnRankOne>(conformance::votes_in_the_same_step_on_all_ranks, "rank 1 and rank 0");
}

TEST(SparsifierConformanceItself, FindsAWrongExample) {
  const Registration registration = register_sparsifier(
      {"wrong", "not what it should", "wrong:key=1"},
      [](Spec&, const SifterContext&) -> std::unique_ptr<Sparsifier> { return std::make_unique<EveryThird>(); });
  const std::string found = complaint(conformance::is_listed_and_its_example_works, {.spec = "wrong"});
  EXPECT_NE(found.find("key"), std::string::npos) << found;
}

}  // namespace
}  // namespace sparsewire::conformance_test

namespace sparsewire::conformance {

INSTANTIATE_TEST_SUITE_P(Library, SparsifierConformance, testing::ValuesIn(conformance_test::every_case()),
                         name_of_case);

}  // namespace sparsewire::conformance
