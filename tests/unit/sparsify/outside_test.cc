// A sparsifier from outside the library: registered, used in spec strings, saved, taken back.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <thread>
#include <vector>

#include "meeting.h"
#include "reference/inputs.h"
#include "sparsewire/errors.h"
#include "sparsewire/sifter.h"
#include "sparsewire/transport.h"
#include "sparsewire/worker.h"
#include "unit/bits.h"

namespace sparsewire::outside_test {
namespace {

using reference::Numbers;

// Sends every n-th entry, a different one in each step, unless its magnitude is below the largest that was observed
// times `share`.
class EveryNth final : public Sparsifier {
 public:
  EveryNth(std::uint64_t n, float share) : n_(n), share_(share) {}

  SparsifierTraits traits() const override { return {.observes = true, .entries_vary = true, .remembers = true}; }
  void choose(std::span<const float> accumulated, std::uint64_t step, std::vector<std::uint32_t>& chosen) override {
    largest_before_ = largest_;
    for (std::size_t i = step % n_; i < accumulated.size(); i += n_) {
      if (std::abs(accumulated[i]) >= share_ * largest_) chosen.push_back(static_cast<std::uint32_t>(i));
    }
    largest_ *= 0.5F;
  }
  void observe(const SparseVector&, std::span<const float> update_at_sent) override {
    for (const float x : update_at_sent) largest_ = std::max(largest_, std::abs(x));
  }
  void rewind() override { largest_ = largest_before_; }
  void serialize(State& state) override { state.value("step", largest_); }

 private:
  std::uint64_t n_;
  float share_;
  float largest_ = 0;
  float largest_before_ = 0;
};

Registration register_every_nth() {
  return register_sparsifier({"every_nth", "every n-th entry", "every_nth:n=3"},
                             [](Spec& spec, const SifterContext&) -> std::unique_ptr<Sparsifier> {
                               const std::uint64_t n = spec.integer("n", 1, 1000).value_or(3);
                               const double share = spec.number("share", {.min = 0}).value_or(0);
                               return std::make_unique<EveryNth>(n, static_cast<float>(share));
                             });
}

// Always chooses the same indices, whatever they are.
class Fixed final : public Sparsifier {
 public:
  explicit Fixed(std::vector<std::uint32_t> indices) : indices_(std::move(indices)) {}
  void choose(std::span<const float>, std::uint64_t, std::vector<std::uint32_t>& chosen) override { chosen = indices_; }

 private:
  std::vector<std::uint32_t> indices_;
};

TEST(OutsideSparsifier, IsChosenByItsName) {
  const Registration registration = register_every_nth();
  Sifter sifter("every_nth:n=2", "ef", {.layout = 5, .first_step = 1});
  SparseVector sent;
  sifter.sift(Numbers{1, 2, 3, 4, 5}, sent);
  EXPECT_EQ(sent.indices, (std::vector<std::uint32_t>{1, 3}));
  EXPECT_EQ(sent.values, (Numbers{2, 4}));
  EXPECT_EQ(sifter.memory(), (Numbers{1, 0, 3, 0, 5}));
  EXPECT_EQ(sifter.stats().sent_norm2, 4 + 16);
  EXPECT_EQ(sifter.stats().memory_norm2, 1 + 9 + 25);
  EXPECT_TRUE(sifter.traits().observes);
  sifter.sift(Numbers{0, 0, -3, 0, 1}, sent);
  EXPECT_EQ(sent.indices, (std::vector<std::uint32_t>{0, 4})) << "index 2 is zero";
  EXPECT_THROW(Sifter("every_nth:m=2", "ef", {.layout = 5}), UsageError);
  EXPECT_THROW(Sifter("every_nth:n=0", "ef", {.layout = 5}), UsageError);
}

TEST(OutsideSparsifier, IsListedWhileItIsRegistered) {
  const auto is_listed = [] {
    const std::vector<SparsifierInfo> all = sparsifiers();
    return std::any_of(all.begin(), all.end(), [](const SparsifierInfo& info) { return info.name == "every_nth"; });
  };
  EXPECT_FALSE(is_listed());
  {
    Registration registration = register_every_nth();
    EXPECT_TRUE(is_listed());
    EXPECT_THROW(static_cast<void>(register_every_nth()), UsageError) << "the name is taken";
    EXPECT_THROW(static_cast<void>(register_sparsifier({"topk", "", ""}, nullptr)), UsageError);
    EXPECT_THROW(static_cast<void>(register_sparsifier({"a:b", "", ""}, nullptr)), UsageError);
    Registration moved = std::move(registration);
    EXPECT_TRUE(is_listed());
    Sifter sifter("every_nth", "ef", {.layout = 4});
    moved = Registration();
    EXPECT_FALSE(is_listed());
    SparseVector sent;
    sifter.sift(Numbers{1, 2, 3, 4}, sent);
    EXPECT_EQ(sent.size(), 2U) << "what was made before goes on";
  }
  EXPECT_THROW(Sifter("every_nth", "ef", {.layout = 4}), UsageError);
}

TEST(OutsideSparsifier, IsRegisteredAndUsedFromManyThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 100; ++i) {
        const std::string name = "of_thread_" + std::to_string(t);
        const Registration registration =
            register_sparsifier({name, "", ""}, [](Spec&, const SifterContext&) -> std::unique_ptr<Sparsifier> {
              return std::make_unique<Fixed>(std::vector<std::uint32_t>{0});
            });
        Sifter sifter(name, "ef", {.layout = 1});
        SparseVector sent;
        sifter.sift(Numbers{1}, sent);
        EXPECT_EQ(sent.size(), 1U);
        EXPECT_GE(sparsifiers().size(), 7U);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(OutsideSparsifier, GetsItsNameOnceAlsoFromTwoThreads) {
  for (int i = 0; i < 300; ++i) {
    std::atomic<int> registered = 0;
    Meeting together(2);
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; ++t) {
      threads.emplace_back([&] {
        Registration registration;
        together.arrive_and_wait();
        try {
          registration = register_every_nth();
          ++registered;
        } catch (const UsageError&) {
        }
        together.arrive_and_wait();
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(registered, 1);
  }
}

TEST(OutsideSparsifier, IsTakenByWorkersAsUplinkAndDownlink) {
  const Registration registration = register_every_nth();
  for (const char* exchange : {"allgather", "server", "sharded", "auto"}) {
    const std::string downlink = exchange == std::string("allgather") ? "" : "every_nth:n=2";
    run_on_threads(3, [&](Transport& transport) {
      const WorkerConfig config{.sparsifier = "every_nth:n=2", .exchange = exchange, .downlink = downlink};
      EXPECT_NO_THROW(Worker(config, 100, transport)) << exchange;
      EXPECT_NO_THROW(Worker(config, 2, transport)) << exchange << ", with fewer entries than ranks";
    });
  }
  run_on_threads(2, [&](Transport& transport) {
    EXPECT_THROW(Worker({.sparsifier = "every_nth:m=2"}, 100, transport), UsageError);
  });
}

TEST(OutsideSparsifier, LosesNothingIfItChoosesWrongly) {
  const auto chooses = [](std::vector<std::uint32_t> indices) {
    return [indices](Spec&, const SifterContext&) -> std::unique_ptr<Sparsifier> {
      return std::make_unique<Fixed>(indices);
    };
  };
  for (const std::vector<std::uint32_t>& wrong : {std::vector<std::uint32_t>{4}, {1, 1}, {2, 1}, {0, 4'000'000'000U}}) {
    const Registration registration = register_sparsifier({"wrong", "", ""}, chooses(wrong));
    Sifter sifter("wrong", "ef", {.layout = 4});
    sifter.write_memory(Numbers{1, 2, 3, 4});
    SparseVector sent;
    EXPECT_THROW(sifter.sift(Numbers{1, 1, 1, 1}, sent), UsageError);
    EXPECT_EQ(sifter.memory(), (Numbers{1, 2, 3, 4}));
    EXPECT_EQ(sifter.step(), 0U);
    EXPECT_EQ(sent.size(), 0U);
  }
}

TEST(OutsideSparsifier, DoesNotSeeABadGradient) {
  const Registration registration = register_every_nth();
  Sifter sifter("every_nth:n=1", "ef", {.layout = 3});
  SparseVector sent;
  EXPECT_THROW(sifter.sift(Numbers{1, NAN, 2}, sent), BadGradient);
  sifter.sift(Numbers{1, 1, 2}, sent);
  EXPECT_EQ(sent.values, (Numbers{1, 1, 2}));
}

TEST(OutsideSparsifier, IsSavedAndTakenBack) {
  const Registration registration = register_every_nth();
  const std::string spec = "every_nth:n=2,share=0.5";
  const std::vector<Numbers> gradients = reference::sequence(reference::input("exact"), 1000, 6, 3);
  Sifter sifter(spec, "ef", {.layout = 1000});
  SparseVector sent;
  for (std::size_t t = 0; t < gradients.size(); ++t) {
    const std::vector<std::byte> before = sifter.save();
    sifter.sift(gradients[t], sent);
    const SparseVector first = sent;
    const std::vector<float> update(sent.size(), 3.0F);
    sifter.observe(sent, update);
    sifter.undo(gradients[t], sent);
    EXPECT_EQ(sifter.save(), before) << "step " << t;

    Sifter loaded(spec, "ef", {.layout = 1000});
    loaded.load(before);
    loaded.sift(gradients[t], sent);
    EXPECT_TRUE(same_bits(first, sent));
    sifter.sift(gradients[t], sent);
    EXPECT_TRUE(same_bits(first, sent));
    sifter.observe(sent, update);
    loaded.observe(sent, update);
    EXPECT_EQ(sifter.save(), loaded.save());
  }
}

}  // namespace
}  // namespace sparsewire::outside_test
