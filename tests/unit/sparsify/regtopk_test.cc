// RegTop-k in a closed loop: several workers send entries, which add up to an update that each of them observes.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>

#include "sparsewire/support/crc32c.h"
#include "unit/bare_sparsifier.h"
#include "unit/one_sift.h"
#include "unit/walk.h"

namespace sparsewire::regtopk_test {
namespace {

// Workers that all observe the update: the weighted sum, in rank order, of what each sends.
class Team {
 public:
  Team(const std::string& spec, std::size_t n, std::vector<double> weights, Scope scope = Scope::model)
      : n_(n), weights_(std::move(weights)) {
    const int ranks = static_cast<int>(weights_.size());
    for (int rank = 0; rank < ranks; ++rank) {
      contexts_.push_back({.layout = n,
                           .scope = scope,
                           .rank = rank,
                           .ranks = ranks,
                           .weight = weights_[static_cast<std::size_t>(rank)]});
      workers_.push_back(
          {make_bare(spec, contexts_.back()), reference::make(spec, plain(contexts_.back())), Numbers(n), {}});
    }
  }

  // One round; compares every choice with the reference.
  Numbers round(const std::vector<Numbers>& gradients) {
    Numbers update(n_);
    for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
      SCOPED_TRACE("rank " + std::to_string(rank));
      Worker& worker = workers_[rank];
      Numbers slow_memory = worker.memory;
      const reference::Round expected = worker.slow->sift(gradients[rank], slow_memory);
      const double accumulated_norm2 = worker.fast->sift(Gradient(gradients[rank]), worker.memory, worker.sent);
      expect_step(expected, {worker.sent, accumulated_norm2, worker.memory});
      const float weight = static_cast<float>(weights_[rank]);
      for (std::size_t i = 0; i < worker.sent.size(); ++i) {
        update[worker.sent.index(i)] += weight * worker.sent.values[i];
      }
    }
    for (Worker& worker : workers_) {
      Numbers at_sent;
      for (const std::uint32_t i : worker.sent.indices) at_sent.push_back(update[i]);
      worker.fast->observe(worker.sent, at_sent);
      worker.slow->observe(worker.sent, at_sent);
    }
    return update;
  }

  const SparseVector& sent(std::size_t rank) const { return workers_[rank].sent; }

 private:
  struct Worker {
    std::unique_ptr<BareSparsifier> fast;
    std::unique_ptr<reference::Reference> slow;
    Numbers memory;
    SparseVector sent;
  };

  const std::size_t n_;
  const std::vector<double> weights_;
  std::vector<SifterContext> contexts_;
  std::vector<Worker> workers_;
};

// The gradients of the workers: a common part, of which some entries have the opposite sign on half of the workers, and
// noise.
std::vector<Numbers> gradients_of(std::size_t workers, std::size_t n, int step) {
  const Numbers common = reference::input("drifting").make(n, 0, 1);
  std::vector<Numbers> gradients;
  for (std::size_t rank = 0; rank < workers; ++rank) {
    Numbers gradient = reference::input("normal").make(n, step, 100 + rank);
    for (std::size_t i = 0; i < n; ++i) {
      const float pull = i % 5 == 0 ? (rank % 2 == 0 ? 4.0F : -4.0F) : 1.0F;
      gradient[i] = pull * common[i] + 0.3F * gradient[i];
    }
    gradients.push_back(gradient);
  }
  return gradients;
}

TEST(RegTopK, IsTopKBeforeItHasObservedAnything) {
  const Numbers gradient = reference::input("few_values").make(1000, 0, 1);
  for (const char* form : {"a", "b"}) {
    const std::string spec = std::string("regtopk:k=30,mu=1,form=") + form;
    EXPECT_EQ(sent_once(spec, gradient), sent_once("topk:k=30", gradient));
    ASSERT_NO_FATAL_FAILURE(check_input(spec, reference::input("drifting"), {.layout = 3000}, 4));
  }
}

TEST(RegTopK, AgreesWithTheFormulaInAClosedLoop) {
  for (const char* spec :
       {"regtopk:ratio=0.05,mu=1", "regtopk:ratio=0.05,mu=4,form=a", "regtopk:ratio=0.05,mu=2,form=b",
        "regtopk:ratio=0.5,mu=1,form=b", "regtopk:ratio=0.1,mu=0.3,q=1.5", "regtopk:k=1,mu=1"}) {
    for (const std::vector<double>& weights :
         {std::vector<double>{0.5, 0.5}, {0.25, 0.25, 0.25, 0.25}, {0.5, 0.2, 0.3}, {1.0}}) {
      SCOPED_TRACE(std::string(spec) + " on " + std::to_string(weights.size()) + " workers");
      constexpr std::size_t kSize = 1500;
      Team team(spec, kSize, weights);
      for (int step = 0; step < 12; ++step) {
        SCOPED_TRACE("step " + std::to_string(step));
        team.round(gradients_of(weights.size(), kSize, step));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(RegTopK, AvoidsAnEntryThatTheOthersCancelled) {
  Team team("regtopk:k=1,mu=1", 3, {0.5, 0.5});
  const std::vector<Numbers> gradients = {{10, 1, 0}, {-10, 1, 0}};
  EXPECT_EQ(team.round(gradients), (Numbers{0, 0, 0}));
  EXPECT_EQ(team.sent(0).indices, (Indices{0}));
  EXPECT_EQ(team.round(gradients), (Numbers{0, 2, 0}));
  EXPECT_EQ(team.sent(0).indices, (Indices{1}));
  EXPECT_EQ(team.sent(1).indices, (Indices{1}));
}

TEST(RegTopK, SendsACancelledEntryWhenNothingElseIsLeft) {
  const std::unique_ptr<BareSparsifier> sparsifier = make_bare("regtopk:k=2,mu=1", {.layout = 3, .ranks = 2});
  const Numbers gradient = {5, 0, 0};
  Numbers memory(3);
  SparseVector out;
  sparsifier->sift(Gradient(gradient), memory, out);
  EXPECT_EQ(out.indices, (Indices{0}));
  sparsifier->observe(out, Numbers{0});
  sparsifier->sift(Gradient(gradient), memory, out);
  EXPECT_EQ(out.indices, (Indices{0})) << "its score is 0, and it is the only one that is not zero";
}

TEST(RegTopK, BreaksTiesOfScoresByTheLowerIndex) {
  const std::unique_ptr<BareSparsifier> sparsifier = make_bare("regtopk:k=2,mu=1", {.layout = 6, .ranks = 2});
  Numbers memory(6);
  SparseVector out;
  const Numbers first = {0, 0, 4, 0, 4, 0};
  sparsifier->sift(Gradient(first), memory, out);
  ASSERT_EQ(out.indices, (Indices{2, 4}));
  sparsifier->observe(out, Numbers{2, 2});  // only this worker sent them: both factors are tanh(1)
  const Numbers second = {0.25F, -0.25F, 4, 0, -4, 4};
  sparsifier->sift(Gradient(second), memory, out);
  EXPECT_EQ(out.indices, (Indices{2, 5})) << "of two equal scores the lower index, after the one with factor 1";
}

TEST(RegTopK, TreatsAnEntryThatWasRoundedToZeroAsNotSent) {
  for (const char* form : {"a", "b"}) {
    for (const float update : {0.0F, -1.0F}) {  // -1 would be a factor of 0 in form b
      const std::string spec = std::string("regtopk:k=1,mu=1,form=") + form;
      const std::unique_ptr<BareSparsifier> sparsifier = make_bare(spec, {.layout = 3, .ranks = 2});
      Numbers memory(3);
      SparseVector out;
      const Numbers first = {0, 4, 0};
      sparsifier->sift(Gradient(first), memory, out);
      ASSERT_EQ(out.indices, (Indices{1}));
      out.values = {0};  // what the receivers decoded
      sparsifier->observe(out, Numbers{update});
      const Numbers second = {1.75F, 2, 1};
      sparsifier->sift(Gradient(second), memory, out);
      EXPECT_EQ(out.indices, (Indices{1})) << "it counts by its magnitude";
    }
  }
}

// An entry that a downlink withheld: with zero as if the others had cancelled it, with unknown as if it had not been
// sent.
TEST(RegTopK, TellsWithheldFromCancelledWhenTold) {
  for (const char* form : {"a", "b"}) {
    for (const bool knows : {false, true}) {
      for (const std::uint8_t came_back : {std::uint8_t{0}, std::uint8_t{1}}) {
        SCOPED_TRACE(::testing::Message() << form << knows << int{came_back});
        const std::string spec =
            std::string("regtopk:k=1,mu=1,withheld=") + (knows ? "unknown" : "zero") + ",form=" + form;
        const SifterContext context{.layout = 2, .ranks = 2};
        const std::unique_ptr<BareSparsifier> sparsifier = make_bare(spec, context);
        const std::unique_ptr<reference::Reference> slow = reference::make(spec, plain(context));
        Numbers memory(2);
        Numbers slow_memory(2);
        SparseVector out;
        const Numbers first = {10, 1};
        sparsifier->sift(Gradient(first), memory, out);
        slow->sift(first, slow_memory);
        ASSERT_EQ(out.indices, (Indices{0}));
        const std::vector<std::uint8_t> flags = {came_back};
        sparsifier->observe(out, Numbers{0}, flags);
        slow->observe(out, Numbers{0}, flags);
        const Numbers second = {form[0] == 'a' ? 10.0F : 5.0F, 1};
        sparsifier->sift(Gradient(second), memory, out);
        const bool counts = knows && came_back == 0;  // by its magnitude
        if (form[0] == 'a') {
          EXPECT_EQ(out.indices, (counts ? Indices{0} : Indices{1}));
        }
        EXPECT_EQ(out.indices, slow->sift(second, slow_memory).out.indices);
      }
    }
  }
}

TEST(RegTopK, ForgetsARoundThatWasNotObserved) {
  const std::unique_ptr<BareSparsifier> sparsifier = make_bare("regtopk:k=1,mu=1", {.layout = 2, .ranks = 2});
  Numbers memory(2);
  SparseVector out;
  const Numbers gradient = {10, 1};
  sparsifier->sift(Gradient(gradient), memory, out);
  sparsifier->observe(out, Numbers{0});
  sparsifier->sift(Gradient(gradient), memory, out);
  EXPECT_EQ(out.indices, (Indices{1}));
  sparsifier->sift(Gradient(gradient), memory, out);
  EXPECT_EQ(out.indices, (Indices{0})) << "as a downlink it never observes, and is Top-k";
}

// With valid checksums: an index beyond the model would be read from the memory.
TEST(RegTopK, RefusesALastRoundThatCannotHaveBeenSent) {
  struct Entry {
    std::uint32_t index;
    float sent;
    float update;
  };
  const SifterContext context{.layout = 100, .ranks = 2};
  const auto saved = make_bare("regtopk:k=2,mu=1", context);
  Numbers memory(100);
  Numbers gradient(100);
  gradient[7] = 3;
  gradient[90] = 5;
  SparseVector out;
  saved->sift(Gradient(gradient), memory, out);
  saved->observe(out, Numbers{0.25F, 0.5F});
  State state;
  saved->serialize(state);
  const std::vector<std::byte> good = std::move(state).bytes();
  const auto with = [&](const std::array<Entry, 2>& entries) {
    constexpr std::array<Entry, 2> kSaved{{{7, 3, 0.25F}, {90, 5, 0.5F}}};
    const auto pattern = std::as_bytes(std::span(kSaved));
    std::vector<std::byte> bytes = good;
    const auto at = std::search(bytes.begin(), bytes.end(), pattern.begin(), pattern.end());
    EXPECT_NE(at, bytes.end());
    std::ranges::copy(std::as_bytes(std::span(entries)), at);
    const std::uint32_t checksum = crc32c(std::span(bytes).first(bytes.size() - sizeof(checksum)));
    std::ranges::copy(std::as_bytes(std::span(&checksum, 1)), bytes.end() - sizeof(checksum));
    return bytes;
  };
  const auto load = [&](const std::vector<std::byte>& bytes) {
    State reading(bytes);
    make_bare("regtopk:k=2,mu=1", context)->serialize(reading);
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinite = std::numeric_limits<float>::infinity();
  EXPECT_NO_THROW(load(good));
  EXPECT_NO_THROW(load(with({{{0, 1, 1}, {99, 1, 1}}})));
  EXPECT_THROW(load(with({{{7, 3, 0.25F}, {100, 5, 0.5F}}})), UsageError);
  EXPECT_THROW(load(with({{{7, 3, 0.25F}, {0xFFFFFFFF, 5, 0.5F}}})), UsageError);
  EXPECT_THROW(load(with({{{7, 3, 0.25F}, {7, 5, 0.5F}}})), UsageError) << "twice";
  EXPECT_THROW(load(with({{{90, 3, 0.25F}, {7, 5, 0.5F}}})), UsageError) << "not in order";
  EXPECT_THROW(load(with({{{7, nan, 0.25F}, {90, 5, 0.5F}}})), UsageError);
  EXPECT_THROW(load(with({{{7, 3, 0.25F}, {90, 5, infinite}}})), UsageError);
}

TEST(RegTopK, TakesItsWeightFromTheSpecTheContextOrTheNumberOfRanks) {
  const auto second_choice = [](const std::string& spec, const SifterContext& context) {
    const std::unique_ptr<BareSparsifier> sparsifier = make_bare(spec, context);
    Numbers memory(2);
    SparseVector out;
    const Numbers gradient = {10, 6};
    sparsifier->sift(Gradient(gradient), memory, out);
    sparsifier->observe(out, Numbers{2.5F});  // tanh(2.5/(w*10)): 0.46 for w = 1/2, 0.24 for w = 1, 0.76 for w = 1/4
    const Numbers more = {20, 6};             // 20 * factor against 12
    sparsifier->sift(Gradient(more), memory, out);
    return out.indices.at(0);
  };
  EXPECT_EQ(second_choice("regtopk:k=1,mu=1", {.layout = 2, .ranks = 4}), 0U);
  EXPECT_EQ(second_choice("regtopk:k=1,mu=1", {.layout = 2, .ranks = 2}), 1U);
  EXPECT_EQ(second_choice("regtopk:k=1,mu=1", {.layout = 2, .ranks = 2, .weight = 0.25}), 0U);
  EXPECT_EQ(second_choice("regtopk:k=1,mu=1,weight=0.25", {.layout = 2, .ranks = 2, .weight = 0.5}), 0U);
}

// The toy problem of the paper: -log sigmoid(<w, x>), x = (100, 1) and (-100, 1), w0 = (0, 1), learning rate 0.9, one
// entry per round. The first coordinates cancel; Top-1 sends nothing else for a hundred rounds.
class Toy {
 public:
  explicit Toy(const std::string& spec) : team_(spec, 2, {0.5, 0.5}) {}

  double loss() const { return 0.5 * (std::log1p(std::exp(-margin(0))) + std::log1p(std::exp(-margin(1)))); }

  void step() {
    std::vector<Numbers> gradients;
    for (std::size_t n = 0; n < 2; ++n) {
      const double slope = -1 / (1 + std::exp(margin(n)));
      gradients.push_back({static_cast<float>(slope * kData[n][0]), static_cast<float>(slope * kData[n][1])});
    }
    const Numbers update = team_.round(gradients);
    for (std::size_t i = 0; i < 2; ++i) w_[i] -= 0.9 * double{update[i]};
  }

 private:
  static constexpr double kData[2][2] = {{100, 1}, {-100, 1}};

  double margin(std::size_t n) const { return w_[0] * kData[n][0] + w_[1] * kData[n][1]; }

  Team team_;
  std::array<double, 2> w_ = {0, 1};
};

std::map<int, double> losses(const std::string& spec, int steps) {
  Toy toy(spec);
  std::map<int, double> result = {{0, toy.loss()}};
  for (int step = 1; step <= steps; ++step) {
    toy.step();
    result[step] = toy.loss();
  }
  return result;
}

TEST(RegTopK, SolvesThePublishedToyProblemWhereTopKStalls) {
  const std::map<int, double> loss = losses("regtopk:k=1,mu=1", 100);
  for (const auto& [step, expected] :
       std::map<int, double>{{0, 0.31326}, {1, 0.31326}, {2, 0.20433}, {10, 0.08366}, {100, 0.01078}}) {
    EXPECT_NEAR(loss.at(step), expected, 5e-6) << "step " << step;
  }
  const std::map<int, double> stalled = losses("topk:k=1", 98);
  for (const auto& [step, value] : stalled) EXPECT_NEAR(value, 0.31326, 5e-6) << "step " << step;
  const std::map<int, double> dense = losses("topk:k=2", 100);
  EXPECT_NEAR(dense.at(1), 0.25371, 5e-6);
  EXPECT_NEAR(dense.at(10), 0.08797, 5e-6);
  EXPECT_NEAR(dense.at(100), 0.01097, 5e-6);
}

}  // namespace
}  // namespace sparsewire::regtopk_test
