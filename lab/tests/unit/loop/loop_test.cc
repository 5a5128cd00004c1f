// The training loop compared with a short independent version, and what it does when something fails.
#include "loop/loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "loop/optimiser.h"
#include "loop/run_or_fail.h"
#include "loop/schedule.h"
#include "problems/problem.h"
#include "sparsewire/errors.h"
#include "sparsewire/support/crc32c.h"
#include "unit/folder.h"
#include "unit/shared_error.h"

namespace sparsewire::train::loop_test {
namespace {

using ::testing::HasSubstr;

// Trains with this problem; the result of rank 0.
Result run(
    const TrainConfig& config, Problem& problem, const std::function<void(Run&)>& change = [](Run&) {}) {
  Result result;
  run_on_threads(static_cast<int>(config.workers), [&](Transport& transport) {
    Run one{.config = config, .problem = problem, .transport = transport};
    change(one);
    const Result mine = train(one);
    if (transport.rank() == 0) result = mine;
  });
  return result;
}

Result run(
    const TrainConfig& config, const std::function<void(Run&)>& change = [](Run&) {}) {
  const auto problem =
      make_problem(config.problem, {.workers = static_cast<int>(config.workers), .seed = config.seed, .data = {}});
  return run(config, *problem, change);
}

TrainConfig small() {
  TrainConfig config;
  config.problem = "downlink_toy:dim=40";
  config.workers = 3;
  config.sparsifier = "topk:k=4";
  config.exchange = "allgather";
  config.steps = 25;
  config.seed = 5;
  return config;
}

std::uint32_t checksum(const std::vector<float>& weights) { return crc32c(std::as_bytes(std::span(weights))); }

// The update of dense workers: the sum of fl(w_r * g_r) in rank order.
std::vector<float> mean(const std::vector<std::vector<float>>& all) {
  std::vector<float> sum(all[0].size());
  const float weight = 1.0F / static_cast<float>(all.size());
  for (const auto& one : all) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += weight * one[i];
  }
  return sum;
}

void cut(std::vector<float>& gradient, double to) {
  double norm2 = 0;
  for (const float g : gradient) norm2 += double{g} * double{g};
  if (to == 0 || std::sqrt(norm2) <= to) return;
  for (float& g : gradient) g = static_cast<float>(double{g} * (to / std::sqrt(norm2)));
}

std::uint32_t by_hand(const TrainConfig& config) {
  const int workers = static_cast<int>(config.workers);
  const auto problem = make_problem(config.problem, {.workers = workers, .seed = config.seed, .data = {}});
  const auto dim = problem->layout().dim();
  const Schedule schedule = make_schedule(config.schedule, config.lr, config.steps);
  std::vector<std::unique_ptr<Optimiser>> optimisers;
  for (int r = 0; r < workers; ++r) optimisers.push_back(make_optimiser(config.optimiser, dim));
  const auto outer = make_optimiser(config.outer_momentum == 0 ? "sgd" : "sgd:momentum=0.9,nesterov=true", dim);
  std::vector<float> weights(dim);
  problem->initial_weights(weights);
  for (std::uint64_t step = 0; step < config.steps; ++step) {
    const double lr = schedule.lr(step);
    std::vector<std::vector<float>> sent;
    for (int r = 0; r < workers; ++r) {
      std::vector<float> local = weights;
      std::vector<float> gradient(dim);
      for (std::uint64_t h = 0; h < config.local_steps; ++h) {
        problem->gradient(r, step * config.local_steps + h, local, gradient);
        cut(gradient, config.clip);
        if (config.local_steps > 1) optimisers[static_cast<std::size_t>(r)]->apply(gradient, {.lr = lr}, local);
      }
      if (config.local_steps > 1) {
        for (std::size_t i = 0; i < dim; ++i) gradient[i] = weights[i] - local[i];
      }
      sent.push_back(gradient);
    }
    const std::vector<float> update = mean(sent);
    if (config.local_steps > 1) {
      outer->apply(update, {.lr = config.outer_lr}, weights);
    } else {
      optimisers[0]->apply(update, {.lr = lr}, weights);
    }
  }
  return checksum(weights);
}

// `dense` over allgather sums in rank order, as by_hand() does.
TEST(Loop, DoesWhatAFewLinesDo) {
  for (const char* optimiser :
       {"sgd", "sgd:momentum=0.9", "sgd:momentum=0.5,nesterov=true", "adam", "adamw:weight_decay=0.1"}) {
    for (const std::uint64_t local_steps : {std::uint64_t{1}, std::uint64_t{3}}) {
      for (const char* schedule : {"constant", "cosine:warmup=3"}) {
        for (const double clip : {0.0, 7.5}) {
          SCOPED_TRACE(testing::Message() << optimiser << ' ' << local_steps << ' ' << schedule << ' ' << clip);
          TrainConfig config = small();
          config.sparsifier = "dense";
          config.optimiser = optimiser;
          config.local_steps = local_steps;
          config.schedule = schedule;
          config.clip = clip;
          const Result result = run(config);
          EXPECT_EQ(result.weights_crc32c, by_hand(config));
          EXPECT_TRUE(result.finished);
        }
      }
    }
  }
}

TEST(Loop, HasAnOuterLearningRateAndMomentum) {
  TrainConfig config = small();
  config.sparsifier = "dense";
  config.local_steps = 3;
  const std::uint32_t without = run(config).weights_crc32c;
  config.outer_lr = 0.7;
  const std::uint32_t with_lr = run(config).weights_crc32c;
  EXPECT_EQ(with_lr, by_hand(config));
  config.outer_momentum = 0.9;
  const std::uint32_t with_both = run(config).weights_crc32c;
  EXPECT_EQ(with_both, by_hand(config));
  EXPECT_NE(without, with_lr);
  EXPECT_NE(with_lr, with_both);
}

TEST(Loop, TakesMemoriesThatHoldTheLearningRate) {
  TrainConfig config = small();
  config.sparsifier = "dense";
  config.lr = 0.25;  // so that lr*mean and mean of lr*g are the same bits
  config.workers = 2;
  const std::uint32_t plain = run(config).weights_crc32c;
  config.feedback = "ef:scale=lr";
  EXPECT_EQ(run(config).weights_crc32c, plain);
}

TEST(Loop, LowersTheLossWithEverySparsifierAndExchange) {
  for (const char* exchange : {"allgather", "server", "sharded", "auto"}) {
    for (const char* sparsifier : {"topk:k=4", "randomk:k=4", "rtopk:k=4", "threshold:lambda=3", "regtopk:k=4"}) {
      SCOPED_TRACE(testing::Message() << exchange << ' ' << sparsifier);
      TrainConfig config = small();
      config.exchange = exchange;
      config.sparsifier = sparsifier;
      config.lr = 0.03;
      config.steps = 1;
      const double before = run(config).evaluation->find("train_loss").value();
      config.steps = 60;
      EXPECT_LT(run(config).evaluation->find("train_loss").value(), before / 2);
    }
  }
}

TEST(Loop, ReportsEveryStepAndEvaluatesSome) {
  TrainConfig config = small();
  config.eval_every = 10;
  std::vector<std::uint64_t> steps;
  std::vector<std::uint64_t> evaluated;
  const Result result = run(config, [&](auto& one) {
    if (one.transport.rank() != 0) return;
    one.on_step = [&](const StepReport& report) {
      steps.push_back(report.step);
      if (report.evaluation) evaluated.push_back(report.step);
    };
  });
  EXPECT_EQ(steps.size(), 25U);
  EXPECT_EQ(steps.back(), 25U);
  EXPECT_EQ(evaluated, (std::vector<std::uint64_t>{10, 20, 25}));
  EXPECT_GT(result.totals.bytes_up, 0U);
  EXPECT_GT(result.totals.bytes_down, 0U);
}

// The counts of all workers after each step, from a loop of our own.
std::vector<Totals> counted_by_hand(const TrainConfig& config) {
  std::vector<Totals> all(config.steps);
  const auto problem = make_problem(config.problem, problem_place(config));
  std::mutex turn;
  run_on_threads(static_cast<int>(config.workers), [&](Transport& transport) {
    Worker worker(worker_config(config), problem->layout(), transport);
    std::vector<float> weights(problem->layout().dim());
    std::vector<float> gradient(weights.size());
    const auto optimiser = make_optimiser(config.optimiser, weights.size());
    problem->initial_weights(weights);
    Totals mine;
    for (std::uint64_t step = 0; step < config.steps; ++step) {
      problem->gradient(transport.rank(), step, weights, gradient);
      worker.step(gradient);
      worker.write_update(gradient);
      optimiser->apply(gradient, {.lr = config.lr}, weights);
      const StepStats& stats = worker.stats();
      mine.bytes_up += stats.bytes_up + stats.trailer_bytes_up;
      mine.bytes_down += stats.bytes_down + stats.trailer_bytes_down;
      mine.bytes_served += stats.bytes_served + stats.trailer_bytes_served;
      mine.paper_bits_up += stats.entries_sent * (stats.entries_sent == weights.size() ? 32 : 64);
      mine.paper_bits_down += stats.entries_total * (stats.entries_total == weights.size() ? 32 : 64);
      mine.entries_up += stats.entries_sent;
      mine.entries_down += stats.entries_total;
      const std::lock_guard lock(turn);
      all[step].bytes_up += mine.bytes_up;
      all[step].bytes_down += mine.bytes_down;
      all[step].bytes_served += mine.bytes_served;
      all[step].paper_bits_up += mine.paper_bits_up;
      all[step].paper_bits_down += mine.paper_bits_down;
      all[step].entries_up += mine.entries_up;
      all[step].entries_down += mine.entries_down;
    }
  });
  return all;
}

// With `server`, rank 0 itself sends nothing: the counts of the others must come to it.
TEST(Loop, CountsTheBytesOfAllWorkersFromTheFirstStepOn) {
  for (const auto& [exchange, sparsifier] : std::vector<std::pair<std::string, std::string>>{
           {"server", "topk:k=4"}, {"sharded", "topk:k=4"}, {"allgather", "threshold:lambda=3"}, {"dense", "dense"}}) {
    SCOPED_TRACE(exchange);
    const Folder folder;
    TrainConfig config = small();
    config.exchange = exchange;
    config.sparsifier = sparsifier;
    config.eval_every = 10;
    config.checkpoint_dir = folder / "c";
    config.checkpoint_every = 0;
    config.metrics = folder / "m.jsonl";
    const std::vector<Totals> expected = counted_by_hand(config);
    run(config, [&](auto& one) {  // interrupted after step 14
      one.stop_requested = [calls = 0]() mutable { return ++calls == 14; };
    });
    config.resume = true;
    const Result result = run(config);
    std::istringstream lines(folder.read("m.jsonl"));
    std::vector<std::uint64_t> steps;
    for (std::string line; std::getline(lines, line);) {
      const Json json = Json::parse(line);
      steps.push_back(json["step"]);
      const Totals& then = expected[steps.back() - 1];
      EXPECT_EQ(json["total_bytes_up"], then.bytes_up);
      EXPECT_EQ(json["total_bytes_down"], then.bytes_down);
      EXPECT_EQ(json["total_bytes_served"], then.bytes_served);
      EXPECT_EQ(json["paper_bits_up"], then.paper_bits_up);
      EXPECT_EQ(json["paper_bits_down"], then.paper_bits_down);
    }
    EXPECT_EQ(steps, (std::vector<std::uint64_t>{10, 20, 25}));
    EXPECT_EQ(result.totals.bytes_up, expected.back().bytes_up);
    EXPECT_EQ(result.totals.paper_bits_down, expected.back().paper_bits_down);
    EXPECT_EQ(result.totals.entries_up, expected.back().entries_up);
    EXPECT_EQ(result.totals.entries_down, expected.back().entries_down);
    EXPECT_GT(result.totals.bytes_up, 0U);
  }
}

TEST(Loop, WritesMetricsOfEveryStepIfAsked) {
  const Folder folder;
  TrainConfig config = small();
  config.metrics = folder / "m.jsonl";
  config.metrics_every_step = true;
  run(config);
  const std::string lines = folder.read("m.jsonl");
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 25);
}

TEST(Loop, MayHaveNoSteps) {
  TrainConfig config = small();
  config.steps = 0;
  const Result result = run(config);
  EXPECT_TRUE(result.finished);
  EXPECT_TRUE(std::isnan(result.totals.loss));
  EXPECT_TRUE(result.evaluation.has_value());
}

TEST(Loop, RefusesOptionsThatCannotBeCombined) {
  const auto refuses = [](const std::function<void(TrainConfig&)>& change, const std::string& says) {
    TrainConfig config = small();
    change(config);
    const std::string error = error_of([&] { run(config); });
    EXPECT_THAT(error, HasSubstr("usage: "));
    EXPECT_THAT(error, HasSubstr(says));
  };
  refuses([](auto& c) { c.feedback = "ef:scale=lr", c.optimiser = "adam"; }, "plain sgd");
  refuses([](auto& c) { c.feedback = "ef:scale=lr", c.optimiser = "sgd:momentum=0.9"; }, "plain sgd");
  refuses([](auto& c) { c.feedback = "ef:scale=lr", c.local_steps = 2; }, "--local-steps 2");
  refuses([](auto& c) { c.outer_lr = 0.7; }, "add --local-steps");
  refuses([](auto& c) { c.outer_momentum = 0.9; }, "add --local-steps");
  refuses([](auto& c) { c.average = "senders", c.measure_every = 1; }, "--average all");
  refuses([](auto& c) { c.feedback = "momentum", c.optimiser = "sgd:momentum=0.9"; },
          "momentum would be applied twice");
  refuses([](auto& c) { c.sparsifier = "topk:ratio=7"; }, "ratio=7");
  refuses([](auto& c) { c.sparsifier = "topk:k=41"; }, "41");
  refuses([](auto& c) { c.optimiser = "nosuch"; }, "nosuch");
  refuses([](auto& c) { c.schedule = "nosuch"; }, "nosuch");
  refuses([](auto& c) { c.exchange = "nosuch"; }, "nosuch");
  refuses([](auto& c) { c.resume = true; }, "--checkpoint-dir");
}

// A problem that breaks on one worker at one step.
class Breaks final : public Problem {
 public:
  Breaks(int worker, std::uint64_t step, double loss, float gradient)
      : worker_(worker), step_(step), loss_(loss), gradient_(gradient) {}

  const Layout& layout() const noexcept override { return layout_; }
  void initial_weights(std::span<float> weights) const override { std::fill(weights.begin(), weights.end(), 1.0F); }
  double gradient(int worker, std::uint64_t step, std::span<const float> weights, std::span<float> gradient) override {
    std::copy(weights.begin(), weights.end(), gradient.begin());
    if (worker != worker_ || step != step_) return 1;
    gradient[3] = gradient_;
    return loss_;
  }
  Score evaluate(Part /*part*/, std::span<const float> /*weights*/) override { return {.loss = evaluated}; }
  std::string_view metric() const noexcept override { return {}; }

  double evaluated = 1;

 private:
  Layout layout_ = 8;
  int worker_;
  std::uint64_t step_;
  double loss_;
  float gradient_;
};

// A problem with a state: worker n adds n + 1 to it in each step.
class Counts final : public Problem {
 public:
  const Layout& layout() const noexcept override { return layout_; }
  void initial_weights(std::span<float> weights) const override { std::fill(weights.begin(), weights.end(), 1.0F); }
  double gradient(int worker, std::uint64_t /*step*/, std::span<const float> weights,
                  std::span<float> gradient) override {
    std::copy(weights.begin(), weights.end(), gradient.begin());
    state(worker)[0] += static_cast<float>(worker) + 1;
    return 1;
  }
  Score evaluate(Part /*part*/, std::span<const float> /*weights*/) override { return {.loss = evaluated_}; }
  std::string_view metric() const noexcept override { return {}; }
  std::span<float> state(int worker) noexcept override { return {&states_[static_cast<std::size_t>(worker)], 1}; }
  void initial_state(std::span<float> state) const override { state[0] = 100; }
  void set_evaluation_state(std::span<const float> state) override { evaluated_ = static_cast<double>(state[0]); }

 private:
  Layout layout_ = 8;
  float states_[4] = {};
  double evaluated_ = 0;
};

TEST(StateOfAProblem, StartsAnewIsAveragedAndResumed) {
  const Folder folder;
  TrainConfig config = small();
  config.steps = 6;
  const auto evaluated = [&](Problem& problem) { return run(config, problem).evaluation->find("train_loss"); };
  Counts problem;
  EXPECT_EQ(evaluated(problem), 100 + 6 * 2);  // workers 0, 1 and 2 count 1, 2 and 3
  EXPECT_EQ(evaluated(problem), 100 + 6 * 2) << "a second training with the same problem";

  config.checkpoint_dir = folder / "c";
  config.steps = 4;
  EXPECT_EQ(evaluated(problem), 100 + 4 * 2);
  config.resume = true;
  config.steps = 6;
  Counts same;
  EXPECT_EQ(evaluated(same), 100 + 6 * 2);
  Counts once_more;
  EXPECT_EQ(evaluated(once_more), 100 + 6 * 2) << "no step is left";
  config.workers = 2;
  config.steps = 7;
  Counts with_two;
  EXPECT_EQ(evaluated(with_two), 100 + 6 * 2 + 1.5) << "both begin with the mean";

  const auto other = make_problem("downlink_toy:dim=8", {.workers = 2});
  EXPECT_THAT(error_of([&] { run(config, *other); }), HasSubstr("a problem's state of 1 numbers"));
}

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(Loop, StopsWhereItDivergesAndNamesStepAndRank) {
  TrainConfig config = small();
  config.sparsifier = "topk:k=1";
  const auto error = [&](Breaks problem) { return error_of([&] { run(config, problem); }); };
  EXPECT_EQ(error({2, 6, kNan, 1}),
            "failed: diverged in step 7: the loss of rank 2 is nan; there is no checkpoint; try a smaller --lr");
  EXPECT_EQ(error({0, 0, kInfinity, 1}),
            "failed: diverged in step 1: the loss of rank 0 is inf; there is no checkpoint; try a smaller --lr");
  EXPECT_EQ(error({1, 6, 1, static_cast<float>(kNan)}),
            "failed: diverged in step 7: the gradient of rank 1 is not finite at index 3, or overflows when it is "
            "added to the "
            "memory; there is no checkpoint; try a smaller --lr");
  Breaks late(0, 99, 1, 1);
  late.evaluated = kNan;
  EXPECT_THAT(error_of([&] { run(config, late); }), HasSubstr("diverged in step 25: the train loss is nan"));
}

// For studies: a run that diverged is a result, one that could not write its metrics is not.
TEST(Loop, TellsDivergenceFromOtherErrors) {
  const auto diverged_at = [](const TrainConfig& config, Problem& problem) -> std::optional<std::uint64_t> {
    try {
      run(config, problem);
    } catch (const SharedError& error) {
      return error.diverged_at();
    }
    return 0;
  };
  TrainConfig config = small();
  config.sparsifier = "topk:k=1";
  Breaks late(0, 99, 1, 1);
  late.evaluated = kNan;
  EXPECT_EQ(diverged_at(config, late), 25);
  Breaks early(2, 6, kNan, 1);
  EXPECT_EQ(diverged_at(config, early), 7);
  config.metrics = "/no/such/folder/m.jsonl";
  Breaks good(0, 99, 1, 1);
  EXPECT_EQ(diverged_at(config, good), std::nullopt);
}

TEST(Loop, ReturnsItsWeightsAndTheLargestMemoryOfAnyWorker) {
  const TrainConfig config = small();
  std::mutex mutex;
  double peak_of_rank_0 = 0;
  const Result result = run(config, [&](auto& one) {
    one.on_step = [&](const StepReport& report) {
      const std::lock_guard lock(mutex);
      peak_of_rank_0 = std::max(peak_of_rank_0, report.stats.memory_norm2);
    };
  });
  EXPECT_EQ(checksum(result.weights), result.weights_crc32c);
  EXPECT_GT(peak_of_rank_0, 0);
  EXPECT_GE(result.totals.peak_memory_norm2, peak_of_rank_0);

  std::vector<Totals> all(3);
  all[1].peak_memory_norm2 = 7;
  all[2].peak_memory_norm2 = 5;
  EXPECT_EQ(sum(all).peak_memory_norm2, 7);
}

TEST(Loop, NamesTheLastCheckpointWhereItDiverges) {
  const Folder folder;
  TrainConfig config = small();
  config.sparsifier = "topk:k=1";
  config.checkpoint_dir = folder / "c";
  config.checkpoint_every = 5;
  Breaks problem(2, 13, kNan, 1);
  EXPECT_THAT(error_of([&] { run(config, problem); }),
              HasSubstr("the last checkpoint is '" + (folder / "c/step-00000010'")));
}

TEST(Loop, ReportsTheMeanLossOfAllWorkers) {
  TrainConfig config = small();
  config.sparsifier = "topk:k=1";
  Breaks problem(2, 24, 4, 1);                             // in the last step 1, 1 and 4
  EXPECT_NEAR(run(config, problem).totals.loss, 2, 1e-6);  // weights of workers are floats
}

// The wish comes on one rank, and all stop at the same step.
TEST(Loop, StopsOnAllRanksWhereOneIsAskedTo) {
  for (const int asked : {0, 1, 2}) {
    const Folder folder;
    TrainConfig config = small();
    const Result whole = run(config);
    config.checkpoint_dir = folder / "c";
    config.resume = true;
    std::atomic<int> calls = 0;
    const Result stopped = run(config, [&](auto& one) {
      if (one.transport.rank() == asked) one.stop_requested = [&] { return ++calls == 8; };
    });
    EXPECT_FALSE(stopped.finished);
    EXPECT_EQ(stopped.step, 8U);
    EXPECT_THAT(stopped.checkpoint.value(), HasSubstr("step-00000008"));
    const Result resumed = run(config);
    EXPECT_TRUE(resumed.finished);
    EXPECT_EQ(resumed.first_step, 8U);
    EXPECT_EQ(resumed.weights_crc32c, whole.weights_crc32c);
    EXPECT_EQ(resumed.totals.bytes_up, whole.totals.bytes_up);
    EXPECT_EQ(resumed.totals.bytes_down, whole.totals.bytes_down);
    EXPECT_EQ(resumed.totals.total_error, whole.totals.total_error);
  }
}

TEST(Loop, StopsWhereMetricsCannotBeWritten) {
  TrainConfig config = small();
  config.metrics = "/dev/full";
  EXPECT_EQ(error_of([&] { run(config); }), "failed: cannot write '/dev/full': No space left on device");
  config.steps = 1;  // there is no next step in which the other ranks learn of it
  EXPECT_EQ(error_of([&] { run(config); }), "failed: cannot write '/dev/full': No space left on device");
  config.metrics = "/nonexistent/m.jsonl";
  EXPECT_THAT(error_of([&] { run(config); }), HasSubstr("'/nonexistent/m.jsonl': No such file"));
}

TEST(Loop, NoticesRanksWithOtherData) {
  const Folder folder;
  folder.write("a", "+1 1:1 2:3\n-1 2:1\n+1 1:2\n");
  folder.write("b", "+1 1:1 2:4\n-1 2:1\n+1 1:2\n");
  folder.write("wider", "+1 1:1 2:3\n-1 2:1\n+1 9:2\n");
  std::vector<std::string> test_data;
  const auto train_with = [&](const std::vector<std::string>& files) {
    TrainConfig config;
    config.problem = "logreg";
    config.workers = files.size();
    config.sparsifier = "topk:k=1";
    config.steps = 2;
    return error_of([&] {
      run_on_threads(static_cast<int>(files.size()), [&](Transport& transport) {
        const std::string& file = files[static_cast<std::size_t>(transport.rank())];
        const auto problem = make_problem(
            config.problem,
            {.workers = transport.size(),
             .seed = config.seed,
             .data = file.empty() ? file : folder / file,
             .test_data = test_data.empty() ? "" : folder / test_data[static_cast<std::size_t>(transport.rank())]});
        train(train::Run{.config = config, .problem = *problem, .transport = transport});
      });
    });
  };
  EXPECT_EQ(train_with({"a", "a", "a"}), "none");
  EXPECT_THAT(train_with({"a", "b", "a"}), HasSubstr("usage: the data of rank 1 differ from those of rank 0"));
  EXPECT_THAT(train_with({"a", "b", "b"}), HasSubstr("usage: the data of ranks 1 and 2 differ from those of rank 0"));
  EXPECT_THAT(train_with({"a", "wider"}), HasSubstr("usage: the data of rank 1 differ"));
  EXPECT_THAT(train_with({"a", ""}), HasSubstr("usage: the data of rank 1 differ"));
  test_data = {"a", "b", "a"};
  EXPECT_THAT(train_with({"a", "a", "a"}), HasSubstr("usage: the data of rank 1 differ"));
}

TEST(RunOrFailOnAll, NamesTheRankThatFailedAlone) {
  const auto message = [](const std::function<void(int rank)>& work) {
    return error_of([&] {
      run_on_threads(3, [&](Transport& transport) { run_or_fail_on_all(transport, [&] { work(transport.rank()); }); });
    });
  };
  EXPECT_EQ(message([](int) {}), "none");
  EXPECT_EQ(message([](int) { throw UsageError("no"); }), "usage: no");
  EXPECT_EQ(message([](int rank) {
              if (rank > 0) throw std::runtime_error("cannot read 'x'");
            }),
            "failed: rank 1: cannot read 'x'");
}

}  // namespace
}  // namespace sparsewire::train::loop_test
