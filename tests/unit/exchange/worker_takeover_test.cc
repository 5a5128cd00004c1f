// What sparsifiers have learnt is kept when a worker gets other options, or takes over from others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "exchange/bodies.h"
#include "reference/inputs.h"
#include "sparsewire/errors.h"
#include "unit/bits.h"
#include "unit/exchange_cases.h"

namespace sparsewire::worker_takeover_test {
namespace {

using bodies::ExchangeCase;
using bodies::Plan;
using bodies::Runner;
using reference::Numbers;

Numbers gradient_of(std::size_t dim, int rank, int step) {
  return reference::input("normal").make(dim, step, 3 + static_cast<std::uint64_t>(rank));
}

// `parts` one after the other.
Numbers joined(std::initializer_list<Numbers> parts) {
  Numbers all;
  for (const Numbers& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

Numbers dense(const Worker& worker) {
  Numbers numbers(worker.layout().dim());
  worker.write_update(numbers);
  return numbers;
}

// 1, 2, 3, ... times `unit`: the k-th largest of n is (n - k + 1) * unit.
Numbers ramp(std::size_t n, float unit) {
  Numbers numbers(n);
  for (std::size_t i = 0; i < n; ++i) numbers[i] = unit * static_cast<float>(i + 1);
  return numbers;
}

std::uint64_t count_from(const Numbers& numbers, double lambda) {
  return static_cast<std::uint64_t>(
      std::count_if(numbers.begin(), numbers.end(), [&](float x) { return std::abs(double{x}) >= lambda; }));
}

// Two ranks nearly cancel each other at even indices.
Numbers cancelling_gradient(std::size_t dim, int rank) {
  Numbers gradient = gradient_of(dim, 0, 0);
  for (std::size_t i = 0; i < dim; i += 2) gradient[i] *= rank == 0 ? 3.0F : -2.9F;
  return gradient;
}

// ---- retune ----

class RetunedWorkers : public EveryExchangeCase {};

INSTANTIATE_TEST_SUITE_P(All, RetunedWorkers, every_spec_and_case(), spec_and_case_as_name);

// The index codec changes no number, so a worker that is retuned again and again does what another one does: while a
// threshold is being measured, when it is agreed on, and after that.
TEST_P(RetunedWorkers, GoOnBitForBitIfOnlyTheCodecChanges) {
  Plan plan = EveryExchangeCase::plan();
  plan.layout = 301;
  plan.config.check_every = 5;
  if (name_of(spec()) == "threshold") {
    plan.config.sparsifier = "threshold:ratio=0.05,calibrate=5";
    if (exchange_case().downlink) plan.config.downlink = "threshold:ratio=0.1,calibrate=7";
  }
  run_on_threads(3, [&](Transport& transport) {
    Runner straight(plan, transport);
    Runner retuned(plan, transport);
    for (std::uint64_t t = 0; t < 14; ++t) {
      SCOPED_TRACE(plan.name() + ", step " + std::to_string(t));
      WorkerConfig config = plan.config_of(transport);
      if (t % 2 == 0) config.codec = "raw32";
      config.check_every = 1 + t % 3;
      retuned.worker.retune(config);
      straight.step(t);
      retuned.step(t);
      ASSERT_TRUE(same_bits(std::span<const float>(straight.update), retuned.update));
      ASSERT_EQ(straight.worker.save(), retuned.worker.save());
    }
  });
}

TEST(Retune, MeasuresAThresholdAgainUnderAnotherRatio) {
  run_on_threads(3, [&](Transport& transport) {
    WorkerConfig config{.sparsifier = "threshold:ratio=0.05,calibrate=3", .exchange = "allgather"};
    Worker worker(config, 1000, transport);
    Numbers gradient = gradient_of(1000, transport.rank(), 0);
    for (int step = 0; step < 4; ++step) worker.step(gradient);
    for (const char* spec : {"threshold:ratio=0.02,calibrate=3", "threshold:ratio=0.02,calibrate=2"}) {
      config.sparsifier = spec;
      worker.retune(config);
      const int steps = spec[std::string(spec).size() - 1] - '0';
      for (int step = 0; step < steps; ++step) {
        worker.step(gradient);
        EXPECT_EQ(worker.stats().entries_sent, 20U) << spec << ": Top-k in step " << step;
      }
      Numbers large(1000, 1e6F);
      worker.step(large);
      EXPECT_EQ(worker.stats().entries_sent, 1000U) << spec << ": not Top-k any more";
    }
  });
}

// With another mu the scores are another function of the same last round.
TEST(Retune, KeepsTheLastRoundOfRegTopKUnderAnotherMu) {
  run_on_threads(2, [&](Transport& transport) {
    constexpr std::size_t kDim = 60;
    constexpr std::size_t kSent = 12;
    constexpr double kMu = 0.3;
    WorkerConfig config{.sparsifier = "regtopk:k=12,mu=4", .exchange = "allgather"};
    Worker worker(config, kDim, transport);
    const Numbers gradient = cancelling_gradient(kDim, transport.rank());
    worker.step(gradient);
    const Numbers before = worker.memory();
    const Numbers update = dense(worker);
    config.sparsifier = "regtopk:k=12,mu=0.3";
    worker.retune(config);

    // score = |a| tanh(|1 + Delta| / mu), 1 + Delta = G / (w s), by the paper.
    std::vector<std::pair<double, std::size_t>> scores;
    for (std::size_t i = 0; i < kDim; ++i) {
      const double sum = double{before[i]} + double{gradient[i]};
      const double sent = double{gradient[i]} - double{before[i]};
      const double factor = sent == 0 ? 1 : std::tanh(std::abs(double{update[i]} / (0.5 * sent)) / kMu);
      scores.emplace_back(-std::abs(sum) * factor, i);
    }
    std::sort(scores.begin(), scores.end());
    std::vector<std::size_t> expected;
    for (std::size_t i = 0; i < kSent; ++i) expected.push_back(scores[i].second);
    std::sort(expected.begin(), expected.end());
    std::vector<std::size_t> by_magnitude(kDim);
    for (std::size_t i = 0; i < kDim; ++i) by_magnitude[i] = i;
    std::sort(by_magnitude.begin(), by_magnitude.end(), [&](std::size_t a, std::size_t b) {
      return std::abs(before[a] + gradient[a]) > std::abs(before[b] + gradient[b]);
    });
    by_magnitude.resize(kSent);
    std::sort(by_magnitude.begin(), by_magnitude.end());
    ASSERT_NE(expected, by_magnitude) << "this test would see nothing";

    worker.step(gradient);
    const Numbers after = worker.memory();
    std::vector<std::size_t> sent;
    for (std::size_t i = 0; i < kDim; ++i) {
      if (after[i] == 0) sent.push_back(i);
    }
    EXPECT_EQ(sent, expected);
  });
}

// ---- adopt ----

// The k-th magnitudes are known: there is no memory, and the gradient is a ramp.
TEST(Adopt, TakesTheMeanOfMeasuredThresholdsByEntries) {
  run_on_threads(3, [&](Transport& transport) {
    const WorkerConfig config{
        .sparsifier = "threshold:ratio=0.1,calibrate=2", .feedback = "none", .exchange = "allgather"};
    Worker ab(config, Layout({{"a", 300}, {"b", 200}}), transport);
    Worker c(config, Layout({{"c", 100}}), transport);
    for (int step = 0; step < 3; ++step) {
      ab.step(ramp(500, 0.01F));
      c.step(ramp(100, 1.0F));
    }
    const double of_ab = 451 * 0.01;  // the 50th largest of 500
    const double of_c = 91;           // the 10th largest of 100
    Worker ca(config, Layout({{"c", 100}, {"a", 300}}), transport);
    Worker b(config, Layout({{"b", 200}}), transport);
    Worker* const old[] = {&ab, &c};
    ca.adopt(old);
    b.adopt(old);
    const Numbers fine = ramp(400, 0.25F);
    ca.step(fine);
    EXPECT_EQ(ca.stats().entries_sent, count_from(fine, (300 * of_ab + 100 * of_c) / 400));
    const Numbers finer = ramp(200, 0.03125F);
    b.step(finer);
    EXPECT_EQ(b.stats().entries_sent, count_from(finer, of_ab));
    b.step(Numbers(200, 1e6F));
    EXPECT_EQ(b.stats().entries_sent, 200U);
  });
}

TEST(Adopt, RestartsACalibrationThatIsNotFinishedOrHasAnotherRatio) {
  run_on_threads(2, [&](Transport& transport) {
    WorkerConfig config{.sparsifier = "threshold:ratio=0.1,calibrate=4", .exchange = "allgather"};
    for (const int steps : {3, 6}) {
      Worker a(config, Layout({{"a", 300}}), transport);
      for (int step = 0; step < steps; ++step) a.step(gradient_of(300, transport.rank(), step));
      WorkerConfig other = config;
      if (steps == 6) other.sparsifier = "threshold:ratio=0.05,calibrate=4";
      Worker now(other, Layout({{"a", 300}}), transport);
      Worker* const old[] = {&a};
      now.adopt(old);
      for (int step = 0; step < 4; ++step) {
        now.step(gradient_of(300, transport.rank(), 10 + step));
        EXPECT_EQ(now.stats().entries_sent, steps == 6 ? 15U : 30U) << "Top-k in step " << step;
      }
      now.step(Numbers(300, 1e6F));
      EXPECT_EQ(now.stats().entries_sent, 300U) << "not Top-k any more";
    }
  });
}

// Of two workers one has finished, the other not, because it has restarted.
TEST(Adopt, MeasuresAgainIfOneOfTheOthersHasNotFinished) {
  run_on_threads(2, [&](Transport& transport) {
    const WorkerConfig config{.sparsifier = "threshold:ratio=0.1,calibrate=4", .exchange = "allgather"};
    const auto step = [&](Worker& worker, int number) {
      worker.step(gradient_of(worker.layout().dim(), transport.rank(), number));
    };
    Worker a(config, Layout({{"a", 300}}), transport);
    Worker first(config, Layout({{"b", 100}}), transport);
    Worker second(config, Layout({{"b", 100}}), transport);
    for (int number = 0; number < 3; ++number) step(a, number), step(first, number);
    Worker* const only[] = {&first};
    second.adopt(only);
    for (int number = 3; number < 6; ++number) step(a, number), step(second, number);
    Worker both(config, Layout({{"a", 300}, {"b", 100}}), transport);
    Worker* const old[] = {&a, &second};
    both.adopt(old);
    for (int number = 6; number < 10; ++number) {
      step(both, number);
      EXPECT_EQ(both.stats().entries_sent, 40U) << "Top-k in step " << number;
    }
  });
}

// The servers of all ranks take the same mean, whatever their regions are.
TEST(Adopt, TakesTheMeanOfTheServersThresholdsToo) {
  for (const char* exchange : {"server", "sharded"}) {
    SCOPED_TRACE(exchange);
    run_on_threads(3, [&](Transport& transport) {
      WorkerConfig config{.sparsifier = "dense", .exchange = exchange};
      config.downlink = "threshold:ratio=1,calibrate=1";  // lambda: the smallest magnitude of the first step
      Worker a(config, Layout({{"a", 300}}), transport);
      Worker c(config, Layout({{"c", 100}}), transport);
      a.step(Numbers(300, 2.0F));
      c.step(Numbers(100, 6.0F));
      Worker ca(config, Layout({{"c", 100}, {"a", 300}}), transport);
      Worker* const old[] = {&a, &c};
      ca.adopt(old);
      const Numbers fine = ramp(400, 0.015625F);
      const SparseVector& update = ca.step(fine);
      EXPECT_NEAR(static_cast<double>(update.size()), static_cast<double>(count_from(fine, 3)), 1)
          << "3 up to rounding";
    });
  }
}

// Over another exchange not every new server has an old one, so all of them measure: also the one that has.
TEST(Adopt, LetsTheServersOfAnotherExchangeMeasureAgain) {
  run_on_threads(3, [&](Transport& transport) {
    WorkerConfig config{.sparsifier = "dense", .exchange = "server"};
    config.downlink = "threshold:ratio=0.25,calibrate=2";
    Worker before(config, Layout({{"a", 480}}), transport);
    for (int step = 0; step < 4; ++step) before.step(gradient_of(480, transport.rank(), step));
    config.exchange = "sharded";
    Worker now(config, Layout({{"a", 480}}), transport);
    Worker* const old[] = {&before};
    now.adopt(old);
    for (int step = 4; step < 6; ++step) {
      EXPECT_EQ(now.step(gradient_of(480, transport.rank(), step)).size(), 120U) << "Top-k in every region";
    }
    for (int step = 6; step < 9; ++step) now.step(gradient_of(480, transport.rank(), step));
  });
}

// With scope `layer` every tensor has its own choice, so it does not matter in which worker it is: the next steps have
// the same bits as without adopt().
TEST(Adopt, ChangesNoStepIfTheChoiceIsByLayer) {
  for (const char* spec : {"topk:ratio=0.1", "regtopk:ratio=0.1,mu=0.5", "regtopk:ratio=0.2,mu=1,form=b"}) {
    for (const char* exchange : {"allgather", "server", "sharded"}) {
      SCOPED_TRACE(spec + std::string(" over ") + exchange);
      run_on_threads(3, [&](Transport& transport) {
        const auto gradient = [&](const char* tensor, std::size_t size, int step) {
          return gradient_of(size, 10 * transport.rank() + 100 * tensor[0], step);
        };
        WorkerConfig config{.sparsifier = spec, .exchange = exchange};
        config.scope = Scope::layer;
        config.weight = 1 + transport.rank();
        Worker straight(config, Layout({{"a", 300}, {"b", 170}, {"c", 90}}), transport);
        Worker ab(config, Layout({{"a", 300}, {"b", 170}}), transport);
        Worker c(config, Layout({{"c", 90}}), transport);
        Worker ca(config, Layout({{"c", 90}, {"a", 300}}), transport);
        Worker b(config, Layout({{"b", 170}}), transport);
        for (int step = 0; step < 8; ++step) {
          const Numbers of_a = gradient("a", 300, step);
          const Numbers of_b = gradient("b", 170, step);
          const Numbers of_c = gradient("c", 90, step);
          straight.step(joined({of_a, of_b, of_c}));
          const Numbers expected = dense(straight);
          const auto part = [&](std::size_t begin, std::size_t size) {
            return Numbers(expected.begin() + static_cast<std::ptrdiff_t>(begin),
                           expected.begin() + static_cast<std::ptrdiff_t>(begin + size));
          };
          if (step < 4) {
            ab.step(joined({of_a, of_b}));
            c.step(of_c);
            ASSERT_EQ(dense(ab), part(0, 470));
            ASSERT_EQ(dense(c), part(470, 90));
          } else {
            ca.step(joined({of_c, of_a}));
            b.step(of_b);
            ASSERT_EQ(dense(ca), joined({part(470, 90), part(0, 300)})) << "step " << step;
            ASSERT_EQ(dense(b), part(300, 170)) << "step " << step;
          }
          if (step == 3) {
            Worker* const old[] = {&ab, &c};
            ca.adopt(old);
            b.adopt(old);
          }
        }
      });
    }
  }
}

// Without a last round RegTop-k is Top-k.
TEST(Adopt, DropsTheLastRoundOfRegTopKUnderOtherWeights) {
  run_on_threads(2, [&](Transport& transport) {
    for (const bool other_weights : {false, true}) {
      WorkerConfig config{.sparsifier = "regtopk:ratio=0.1,mu=0.5", .exchange = "allgather"};
      Worker first(config, 300, transport);
      Worker twin(config, 300, transport);
      const Numbers gradient = cancelling_gradient(300, transport.rank());
      first.step(gradient);
      twin.step(gradient);
      if (other_weights) config.weight = 1 + transport.rank();
      Worker regular(config, 300, transport);
      config.sparsifier = "topk:ratio=0.1";
      Worker plain(config, 300, transport);
      Worker* const from_first[] = {&first};
      Worker* const from_twin[] = {&twin};
      regular.adopt(from_first);
      plain.adopt(from_twin);
      regular.step(gradient);
      plain.step(gradient);
      EXPECT_EQ(regular.memory() == plain.memory(), other_weights);
    }
  });
}

// What the old servers owe is too large for the new worker's memory, or together with what its server owes already.
TEST(Adopt, RefusesWhatIsOwedByAServerIfItIsTooLarge) {
  run_on_threads(2, [&](Transport& transport) {
    WorkerConfig config{.sparsifier = "topk:k=60", .exchange = "sharded"};
    config.downlink = "topk:k=2";  // one entry of each region; the others stay with the server
    Numbers large(64, 3e38F);
    std::fill_n(large.begin(), 4, 1.0F);  // stay with the worker
    Worker old(config, 64, transport);
    Worker twin(config, 64, transport);
    old.step(large);
    twin.step(large);
    std::vector<double> owed(64);
    old.add_server_memory(owed);
    const auto is_as_before = [&] {
      std::vector<double> now(64);
      old.add_server_memory(now);
      EXPECT_EQ(now, owed);
      EXPECT_EQ(old.save(), twin.save());
    };
    Worker* const from[] = {&old};

    WorkerConfig without = config;
    without.exchange = "allgather";
    without.downlink = "";
    Worker memory_only(without, 64, transport);  // 3e38 / 0.5
    const std::vector<std::byte> before = memory_only.save();
    EXPECT_THROW(memory_only.adopt(from), UsageError);
    EXPECT_EQ(memory_only.save(), before);
    is_as_before();

    Worker owes_as_much(config, 64, transport);
    owes_as_much.step(large);
    const std::vector<std::byte> owing = owes_as_much.save();
    EXPECT_THROW(owes_as_much.adopt(from), UsageError);
    EXPECT_EQ(owes_as_much.save(), owing);
    is_as_before();

    const Numbers small(64, 1.0F);
    EXPECT_TRUE(same_bits(SparseVector(twin.step(small)), old.step(small))) << "nothing has changed";
    memory_only.step(small);
  });
}

// ---- A sparsifier from outside ----

// Sends what is at least the mean magnitude of the last update.
class AboveTheMean final : public Sparsifier {
 public:
  SparsifierTraits traits() const override { return {.observes = true, .entries_vary = true, .remembers = true}; }
  void choose(std::span<const float> accumulated, std::uint64_t, std::vector<std::uint32_t>& chosen) override {
    mean_before_ = mean_;
    for (std::size_t i = 0; i < accumulated.size(); ++i) {
      if (std::abs(accumulated[i]) >= mean_) chosen.push_back(static_cast<std::uint32_t>(i));
    }
  }
  void observe(const SparseVector&, std::span<const float> update) override {
    double sum = 0;
    for (const float x : update) sum += std::abs(double{x});
    mean_ = update.empty() ? 0.0F : static_cast<float>(sum / static_cast<double>(update.size()));
  }
  void rewind() override { mean_ = mean_before_; }
  void serialize(State& state) override { state.value("mean", mean_); }
  // The largest.
  void learn_from(std::span<const Predecessor<Sparsifier>> others) override {
    mean_ = 0;
    for (const auto& other : others) {
      if (const auto* const from = dynamic_cast<const AboveTheMean*>(other.learner))
        mean_ = std::max(mean_, from->mean_);
    }
  }

 private:
  float mean_ = 0;
  float mean_before_ = 0;
};

Registration register_above_the_mean() {
  return register_sparsifier(
      {"above_the_mean", "what exceeds the last mean", "above_the_mean"},
      [](Spec&, const SifterContext&) -> std::unique_ptr<Sparsifier> { return std::make_unique<AboveTheMean>(); });
}

// The update is the weighted sum of what each rank must have sent, computed here.
TEST(OutsideSparsifierInAWorker, StepsOverEveryExchange) {
  const Registration registration = register_above_the_mean();
  for (const char* exchange : {"allgather", "server", "sharded"}) {
    SCOPED_TRACE(exchange);
    run_on_threads(3, [&](Transport& transport) {
      constexpr std::size_t kDim = 200;
      WorkerConfig config{.sparsifier = "above_the_mean", .exchange = exchange};
      Worker worker(config, kDim, transport);
      std::vector<Numbers> memories(3, Numbers(kDim));
      std::vector<float> means(3);
      for (int step = 0; step < 6; ++step) {
        std::vector<Numbers> sent(3, Numbers(kDim));
        Numbers total(kDim);
        for (std::size_t rank = 0; rank < 3; ++rank) {
          const Numbers gradient = gradient_of(kDim, static_cast<int>(rank), step);
          for (std::size_t i = 0; i < kDim; ++i) {
            memories[rank][i] += gradient[i];
            if (std::abs(memories[rank][i]) < means[rank]) continue;
            std::swap(sent[rank][i], memories[rank][i]);
            memories[rank][i] = 0;
            total[i] += static_cast<float>(1.0 / 3) * sent[rank][i];
          }
        }
        for (std::size_t rank = 0; rank < 3; ++rank) {
          double sum = 0;
          double count = 0;
          for (std::size_t i = 0; i < kDim; ++i) {
            if (sent[rank][i] == 0) continue;
            sum += std::abs(double{total[i]});
            count += 1;
          }
          means[rank] = count == 0 ? 0.0F : static_cast<float>(sum / count);
        }
        worker.step(gradient_of(kDim, transport.rank(), step));
        ASSERT_EQ(dense(worker), total) << "step " << step;
        ASSERT_EQ(worker.memory(), memories[static_cast<std::size_t>(transport.rank())]) << "step " << step;
        config.check_every = static_cast<std::uint64_t>(step);
        if (step >= 2) worker.retune(config);  // what it has learnt is kept
        if (step != 3) continue;
        Worker heir(config, kDim, transport);
        Worker* const old[] = {&worker};
        heir.adopt(old);
        worker = std::move(heir);
      }
    });
  }
}

}  // namespace
}  // namespace sparsewire::worker_takeover_test
