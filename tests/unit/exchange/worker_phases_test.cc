// Steps in two halves, steps that are taken back, updates in several forms, other options and other groups of tensors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <thread>

#include "exchange/bodies.h"
#include "reference/half.h"
#include "reference/inputs.h"
#include "sparsewire/errors.h"
#include "transport/star.h"
#include "unit/bits.h"
#include "unit/exchange_cases.h"

namespace sparsewire::worker_phases_test {
namespace {

using bodies::ExchangeCase;
using bodies::Plan;
using bodies::Runner;
using reference::Numbers;

// Gradients that add without rounding, so that a step that is taken back leaves no trace at all.
Numbers exact_gradient(std::size_t dim, int rank, std::uint64_t step) {
  return reference::exact_numbers(dim, static_cast<int>(step), 100 + static_cast<std::uint64_t>(rank));
}

class TakenBackSteps : public EveryExchangeCase {};

TEST_P(TakenBackSteps, LeaveNoTrace) {
  for (const char* codec : {"auto", "auto:values=bf16"}) {
    if (is_all_reduce() && std::string(codec) != "auto") continue;
    Plan plan = bodies::plan_of(spec(), exchange_case(), codec);
    plan.config.check_every = 4;
    run_on_threads(3, [&](Transport& transport) {
      Runner straight(plan, transport);
      Runner run(plan, transport);
      const std::size_t dim = plan.layout.dim();
      for (std::uint64_t t = 0; t < (kSlowBuild ? 6U : 24U); ++t) {
        SCOPED_TRACE(plan.name() + ", step " + std::to_string(t));
        const Numbers mistake = exact_gradient(dim, transport.rank(), 1000 + t);
        if (t % 2 == 1) {
          const std::vector<std::byte> before = run.worker.save();
          run.worker.step(mistake);
          run.worker.take_back_step();
          EXPECT_THROW(run.worker.take_back_step(), UsageError);
          if (t % 4 == 1) {
            run.worker.step(mistake, {.unscale = 0.5F});
            run.worker.take_back_step();
          }
          std::vector<double> owed(dim);
          run.worker.add_server_memory(owed);
          std::vector<double> expected(dim);
          straight.worker.add_server_memory(expected);
          EXPECT_EQ(owed, expected);
          EXPECT_EQ(run.worker.memory(), straight.worker.memory());
          EXPECT_EQ(run.worker.stats().step, straight.worker.stats().step);
        }
        const Numbers gradient = exact_gradient(dim, transport.rank(), t);
        const SparseVector expected = straight.worker.step(gradient);
        run.worker.begin_step(gradient);
        const SparseVector* update = nullptr;
        std::thread([&] { update = &run.worker.finish_step(); }).join();  // from another thread
        ASSERT_TRUE(same_bits(expected, *update));
        ASSERT_EQ(run.worker.memory(), straight.worker.memory());
        EXPECT_EQ(run.worker.save(), straight.worker.save());
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(All, TakenBackSteps, every_spec_and_case(), spec_and_case_as_name);

// `auto` goes dense after a step with many entries. If that is taken back, the next step is sparse as before.
TEST(TakenBackStepsOfAuto, DoNotDecideWhetherTheNextOneIsDense) {
  Plan plan = bodies::plan_of("threshold:lambda=12", {"auto"});
  plan.fill = bodies::fill_swinging_gradient;
  run_on_threads(3, [&](Transport& transport) {
    Runner straight(plan, transport);
    Runner run(plan, transport);
    int dense = 0;
    for (std::uint64_t t = 0; t < 12; ++t) {
      Numbers mistake(plan.layout.dim());
      plan.fill(mistake, 5, transport.rank(), t + 2);  // many entries where the others are few, and the other way round
      run.worker.step(mistake);
      run.worker.take_back_step();
      const bool went_dense = straight.step(t).went_dense;
      dense += went_dense ? 1 : 0;
      EXPECT_EQ(run.step(t).went_dense, went_dense) << "step " << t;
      ASSERT_TRUE(same_bits(std::span<const float>(straight.update), run.update)) << "step " << t;
      ASSERT_EQ(straight.worker.save(), run.worker.save()) << "step " << t;
    }
    EXPECT_GT(dense, 2);
    EXPECT_LT(dense, 10);
  });
}

TEST(StepsInHalves, RefuseCallsInTheWrongOrder) {
  run_on_threads(2, [&](Transport& transport) {
    Worker worker({.sparsifier = "topk:ratio=0.1"}, 100, transport);
    const Numbers gradient(100, 1.0F);
    EXPECT_THROW(worker.finish_step(), UsageError);
    EXPECT_THROW(worker.take_back_step(), UsageError);
    worker.begin_step(gradient);
    EXPECT_THROW(worker.begin_step(gradient), UsageError);
    EXPECT_THROW(worker.take_back_step(), UsageError);
    EXPECT_THROW(worker.save(), UsageError);
    EXPECT_THROW(worker.write_memory("", gradient), UsageError);
    worker.finish_step();
    worker.write_memory("", gradient);
    EXPECT_THROW(worker.take_back_step(), UsageError) << "something came after the step";
    worker.step(gradient);
    worker.take_back_step();
    EXPECT_EQ(worker.memory(), gradient);
  });
}

// The error must reach the other ranks, so the first half keeps it for the second.
TEST(StepsInHalves, ThrowABadGradientInTheSecondHalf) {
  run_on_threads(2, [&](Transport& transport) {
    Worker worker({.sparsifier = "topk:ratio=0.1"}, 100, transport);
    Numbers gradient(100, 1.0F);
    if (transport.rank() == 1) gradient[7] = NAN;
    worker.begin_step(gradient);
    EXPECT_THROW(worker.finish_step(), BadGradient);
    EXPECT_THROW(worker.take_back_step(), UsageError);
    gradient[7] = 1;
    EXPECT_EQ(worker.step(gradient).size(), 10U);
  });
}

TEST(Updates, AreWrittenAndAppliedInEveryFormat) {
  for (const char* sparsifier : {"topk:k=3", "dense"}) {
    run_on_threads(2, [&](Transport& transport) {
      Worker worker({.sparsifier = sparsifier, .exchange = "allgather"}, 7, transport);
      Numbers gradient = {1, -2, 3, 0.125F, 5, -6, 0.5F};
      const SparseVector update = worker.step(gradient);
      Numbers expected(7);
      for (std::size_t i = 0; i < update.size(); ++i) expected[update.index(i)] = update.values[i];
      Numbers dense(7, 9.0F);
      worker.write_update(dense);
      EXPECT_EQ(dense, expected);
      worker.write_update(gradient, -2);
      for (std::size_t i = 0; i < 7; ++i) EXPECT_EQ(gradient[i], -2 * expected[i]);
      Numbers weights = {1, 2, 3, 4, 5, 6, 7};
      worker.apply_update(weights, 0.3F);
      for (std::size_t i = 0; i < 7; ++i) EXPECT_EQ(weights[i], static_cast<float>(i + 1) - 0.3F * expected[i]);

      std::vector<std::uint16_t> bf16(7, reference::to_bf16(1.5F));
      worker.apply_update({bf16.data(), NumberType::bf16, 7}, 0.3F);
      std::vector<std::uint16_t> f16(7);
      worker.write_update({f16.data(), NumberType::f16, 7}, 0.3F);
      for (std::size_t i = 0; i < 7; ++i) {
        EXPECT_EQ(bf16[i], reference::to_bf16(1.5F - 0.3F * expected[i]));
        EXPECT_EQ(f16[i], reference::to_f16(0.3F * expected[i]));
      }
      EXPECT_THROW(worker.write_update(std::span(dense).first(6)), UsageError);
      EXPECT_THROW(worker.apply_update(std::span(dense).first(6), 1), UsageError);
      EXPECT_THROW(worker.apply_update({dense.data(), NumberType::f32, 8}, 1), UsageError);
    });
  }
}

TEST(Unscale, MultipliesTheGradient) {
  for (const char* feedback : {"ef", "ef:scale=lr", "none", "momentum:m=0.5,clip=2"}) {
    run_on_threads(2, [&](Transport& transport) {
      Worker scaled({.sparsifier = "topk:k=5", .feedback = feedback}, 100, transport);
      Worker plain({.sparsifier = "topk:k=5", .feedback = feedback}, 100, transport);
      for (int step = 0; step < 5; ++step) {
        Numbers gradient = reference::input("normal").make(100, step, 3);
        const SparseVector expected = plain.step(gradient, {.lr = 0.5F});
        for (float& x : gradient) x *= 1024;
        ASSERT_TRUE(same_bits(expected, scaled.step(gradient, {.lr = 0.5F, .unscale = 1.0F / 1024}))) << feedback;
      }
    });
  }
}

// ---- retune ----

TEST(Retune, KeepsTheMemoryAndChangesTheRatio) {
  for (const ExchangeCase& setup : bodies::every_exchange_case()) {
    if (setup.exchange == "dense") continue;
    Plan plan = bodies::plan_of("topk:ratio=0.1", setup);
    run_on_threads(3, [&](Transport& transport) {
      Runner run(plan, transport);
      for (std::uint64_t t = 0; t < 5; ++t) run.step(t);
      const std::vector<double> owed = bodies::owed(transport, plan, run.worker);
      WorkerConfig config = plan.config_of(transport);
      config.sparsifier = "topk:ratio=0.02";
      if (setup.downlink) config.downlink = "topk:ratio=0.3";
      config.codec = "golomb:values=bf16";
      run.worker.retune(config);
      EXPECT_THROW(run.worker.take_back_step(), UsageError) << "something came after the step";
      EXPECT_EQ(bodies::owed(transport, plan, run.worker), owed);
      EXPECT_EQ(run.worker.stats().step, 5U);
      const StepStats& stats = run.step(5);
      EXPECT_EQ(stats.step, 6U);
      EXPECT_EQ(stats.entries_sent, static_cast<std::uint64_t>(0.02 * static_cast<double>(plan.layout.dim()) + 0.5));
      bodies::require_same_everywhere(transport, std::span<const float>(run.weights), "weights");
    });
  }
}

TEST(Retune, RefusesWhatMustStayAndRanksThatDiffer) {
  const WorkerConfig config{.sparsifier = "topk:ratio=0.1", .exchange = "server", .downlink = "topk:ratio=0.1"};
  run_on_threads(3, [&](Transport& transport) {
    Worker worker(config, 100, transport);
    Worker twin(config, 100, transport);
    const Numbers gradient(100, 1.0F);
    worker.step(gradient);
    twin.step(gradient);
    std::vector<WorkerConfig> wrong(9, config);
    wrong[0].exchange = "sharded";
    wrong[1].feedback = "none";
    wrong[2].feedback = "ef:scale=lr";
    wrong[3].scope = Scope::layer;
    wrong[4].seed = 5;
    wrong[5].weight = 1 + transport.rank();
    wrong[6].downlink = "";
    wrong[7].sparsifier = "topk:ratio=7";
    if (transport.rank() == 2) wrong[8].sparsifier = "topk:ratio=0.2";
    for (const WorkerConfig& other : wrong) EXPECT_THROW(worker.retune(other), UsageError);
    for (int step = 0; step < 3; ++step) {
      const SparseVector expected = twin.step(gradient);
      ASSERT_TRUE(same_bits(expected, worker.step(gradient))) << "nothing has changed";
    }
  });
}

// ---- adopt ----

// Two workers over {a, b} and {c}, then one over {c, a} and one over {b}; weights may differ.
void check_adopted(const ExchangeCase& before, const ExchangeCase& after, const std::vector<double>& old_weights,
                   const std::vector<double>& new_weights, const char* feedback) {
  const auto config_of = [&](const ExchangeCase& setup, const std::vector<double>& weights, int rank) {
    WorkerConfig config{.sparsifier = "topk:ratio=0.05", .feedback = feedback, .exchange = setup.exchange};
    if (setup.downlink) config.downlink = "topk:ratio=0.05";
    config.weight = weights[static_cast<std::size_t>(rank)];
    return config;
  };
  const auto share = [](const std::vector<double>& weights, int rank) {
    double sum = 0;
    for (const double weight : weights) sum += weight;
    return static_cast<double>(static_cast<float>(weights[static_cast<std::size_t>(rank)] / sum));
  };
  run_on_threads(3, [&](Transport& transport) {
    const int rank = transport.rank();
    Worker ab(config_of(before, old_weights, rank), Layout({{"a", 300}, {"b", 170}}), transport);
    Worker c(config_of(before, old_weights, rank), Layout({{"c", 90}}), transport);
    for (int step = 0; step < 6; ++step) {
      ab.step(reference::input("normal").make(470, step, 3 + static_cast<std::uint64_t>(rank)));
      c.step(reference::input("normal").make(90, step, 30 + static_cast<std::uint64_t>(rank)));
    }
    // What is owed to the weights, by tensor: w*e on each rank and E of each rank's server.
    const auto owed = [&](const std::vector<const Worker*>& workers, const std::vector<double>& weights) {
      std::map<std::string, std::vector<double>> sums;
      for (const Worker* worker : workers) {
        std::vector<double> mine(worker->layout().dim());
        worker->add_server_memory(mine);
        const std::vector<float> memory = worker->memory();
        for (std::size_t i = 0; i < mine.size(); ++i) mine[i] += share(weights, rank) * double{memory[i]};
        for (const TensorRange& tensor : worker->layout().tensors()) {
          const auto begin = mine.begin() + static_cast<std::ptrdiff_t>(tensor.begin);
          const std::vector<double> part(begin, begin + static_cast<std::ptrdiff_t>(tensor.size));
          std::vector<double>& sum = sums[tensor.name];
          sum.resize(tensor.size);
          for (const auto& one : bodies::from_all(transport, std::span<const double>(part))) {
            for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += one[i];
          }
        }
      }
      return sums;
    };
    const auto expected = owed({&ab, &c}, old_weights);
    Worker ca(config_of(after, new_weights, rank), Layout({{"c", 90}, {"a", 300}}), transport);
    Worker b(config_of(after, new_weights, rank), Layout({{"b", 170}}), transport);
    Worker* const old[] = {&ab, &c};
    ca.adopt(old);
    b.adopt(old);
    const auto actual = owed({&ca, &b}, new_weights);
    ASSERT_EQ(actual.size(), expected.size());
    for (const auto& [name, sums] : expected) {
      const std::vector<double>& now = actual.at(name);
      for (std::size_t i = 0; i < sums.size(); ++i) EXPECT_NEAR(now[i], sums[i], 1e-6 * (1 + std::abs(sums[i])));
    }
    const auto left = owed({&ab, &c}, old_weights);
    for (const auto& [name, sums] : left) EXPECT_THAT(sums, ::testing::Each(0.0)) << name << " has left";
    EXPECT_EQ(ca.step(Numbers(390, 1.0F)).dim, 390U);
    EXPECT_EQ(ca.stats().step, 7U);
    b.step(Numbers(170, 1.0F));
  });
}

TEST(Adopt, KeepsWhatIsOwed) {
  const std::vector<ExchangeCase> cases = {{"allgather"}, {"server", true}, {"sharded", true}};
  for (const ExchangeCase& before : cases) {
    for (const ExchangeCase& after : cases) {
      for (const std::vector<double>& weights : {std::vector<double>{1, 1, 1}, {1, 0.5, 3}}) {
        for (const char* feedback : {"ef", "momentum:m=0.5"}) {
          SCOPED_TRACE(before.name() + " to " + after.name() + ", " + feedback);
          ASSERT_NO_FATAL_FAILURE(check_adopted(before, after, {1, 1, 1}, weights, feedback));
        }
      }
    }
  }
}

TEST(Adopt, KeepsTheBitsIfOnlyTheGroupsChange) {
  run_on_threads(2, [&](Transport& transport) {
    const WorkerConfig config{.sparsifier = "topk:ratio=0.05", .exchange = "allgather"};
    Worker ab(config, Layout({{"a", 300}, {"b", 170}}), transport);
    for (int step = 0; step < 4; ++step) ab.step(reference::input("spread_scales").make(470, step, 3));
    const Numbers before = ab.memory();
    Worker ba(config, Layout({{"b", 170}, {"a", 300}}), transport);
    Worker* const old[] = {&ab};
    ba.adopt(old);
    const Numbers after = ba.memory();
    EXPECT_TRUE(std::equal(before.begin(), before.begin() + 300, after.begin() + 170));
    EXPECT_TRUE(std::equal(before.begin() + 300, before.end(), after.begin()));
  });
}

TEST(Adopt, RefusesBeforeAnythingChanges) {
  run_on_threads(2, [&](Transport& transport) {
    const WorkerConfig config{.sparsifier = "topk:ratio=0.05", .exchange = "allgather"};
    Worker a(config, Layout({{"a", 40}}), transport);
    Worker late(config, Layout({{"b", 40}}), transport);
    a.step(reference::input("normal").make(40, 0, 3));
    const Numbers memory = a.memory();
    Worker* const both[] = {&a, &late};
    Worker* const only[] = {&a};
    const auto refuses = [&](const WorkerConfig& other, Layout layout, std::span<Worker* const> from) {
      Worker worker(other, std::move(layout), transport);
      EXPECT_THROW(worker.adopt(from), UsageError);
      EXPECT_THAT(worker.memory(), ::testing::Each(0.0F));
      EXPECT_EQ(a.memory(), memory);
    };
    WorkerConfig changed = config;
    refuses(config, Layout({{"a", 40}, {"b", 40}}), both);  // at different steps
    refuses(config, Layout({{"x", 40}}), only);
    refuses(config, Layout({{"a", 41}}), only);
    changed.feedback = "none";
    refuses(changed, Layout({{"a", 40}}), only);
    changed.feedback = "ef:scale=lr";
    refuses(changed, Layout({{"a", 40}}), only);
    changed.feedback = "ef";
    changed.weight = transport.rank();  // 0 and 1
    if (transport.rank() == 0) {
      refuses(changed, Layout({{"a", 40}}), only);
    } else {
      Worker worker(changed, Layout({{"a", 40}}), transport);
    }
    Worker itself(config, Layout({{"a", 40}}), transport);
    Worker* const same[] = {&itself};
    EXPECT_THROW(itself.adopt(same), UsageError);
    Worker* const nobody[] = {nullptr};
    EXPECT_THROW(itself.adopt(nobody), UsageError);
  });
}

// One rank that does what the others do not is noticed in the next step.
TEST(Adopt, OnOneRankOnlyIsNoticed) {
  run_on_threads(2, [&](Transport& transport) {
    const WorkerConfig config{.sparsifier = "topk:ratio=0.05", .exchange = "allgather"};
    Worker old(config, 40, transport);
    Worker now(config, 40, transport);
    Worker* const from[] = {&old};
    if (transport.rank() == 1) now.adopt(from);
    EXPECT_THROW(now.step(Numbers(40, 1.0F)), TransportError);
  });
}

// Where only rank 0 has links.
TEST(AStar, RetunesAndTakesStepsBack) {
  run_on_threads(4, [&](Transport& transport) {
    StarTransport star(transport);
    WorkerConfig config{.sparsifier = "threshold:ratio=0.1,calibrate=3", .exchange = "server"};
    config.downlink = "topk:ratio=0.1";
    config.check_every = 3;
    Worker worker(config, 200, star);
    for (int step = 0; step < 20; ++step) {
      const Numbers gradient =
          reference::input("normal").make(200, step, 3 + static_cast<std::uint64_t>(transport.rank()));
      worker.step(gradient);
      if (step % 5 == 2) worker.take_back_step();
      if (step == 10) {
        config.sparsifier = "topk:ratio=0.05";
        worker.retune(config);
      }
    }
  });
}

}  // namespace
}  // namespace sparsewire::worker_phases_test
