// xi and gamma, and a downlink that drops what it does not send. Compared with slow sums over dense vectors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "exchange/bodies.h"
#include "sparsewire/errors.h"
#include "sparsewire/transport.h"
#include "sparsewire/worker.h"

namespace sparsewire::measure_test {
namespace {

using bodies::Numbers;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr std::uint64_t kDim = 101;
constexpr int kRanks = 3;
using Dense = std::vector<double>;

struct Plan {
  std::string sparsifier;
  std::string feedback;
  std::string exchange;
  std::string downlink;
  std::string downlink_feedback;
};

double norm(const Dense& numbers) {
  return std::sqrt(std::inner_product(numbers.begin(), numbers.end(), numbers.begin(), 0.0));
}

Dense top(const Dense& numbers, std::uint64_t k) {
  std::vector<std::size_t> order(numbers.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return std::abs(numbers[a]) > std::abs(numbers[b]); });
  Dense kept(numbers.size());
  for (std::size_t i = 0; i < k; ++i) kept[order[i]] = numbers[order[i]];
  return kept;
}

Dense minus(Dense a, const Dense& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] -= b[i];
  return a;
}

// The numbers of all ranks, added up in double.
Dense sum_over_ranks(Transport& transport, const Dense& mine) {
  std::vector<std::vector<std::byte>> all;
  transport.all_gather(std::as_bytes(std::span(mine)), all);
  Dense sum(mine.size());
  for (const auto& bytes : all) {
    Dense theirs(mine.size());
    std::memcpy(theirs.data(), bytes.data(), bytes.size());
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += theirs[i];
  }
  return sum;
}

WorkerConfig config_of(const Plan& plan, int rank) {
  WorkerConfig config{.sparsifier = plan.sparsifier, .feedback = plan.feedback, .exchange = plan.exchange};
  config.downlink = plan.downlink;
  config.downlink_feedback = plan.downlink_feedback;
  config.weight = 1 + rank;
  return config;
}

TEST(CompressionOfAStep, IsMeasuredAsDefined) {
  for (const Plan& plan : {Plan{"topk:k=7", "ef", "allgather", "", "ef"},
                           {"topk:k=7", "ef:scale=lr", "server", "", "ef"},
                           {"topk:k=7", "ef:decay=0.9,scale=lr", "server", "topk:k=7", "ef"},
                           {"topk:k=7", "ef", "sharded", "topk:ratio=0.1", "ef"},
                           {"topk:k=20", "ef", "server", "topk:k=5", "none"},
                           {"dense", "ef", "dense", "", "ef"}}) {
    SCOPED_TRACE(plan.sparsifier + " " + plan.feedback + " " + plan.exchange + " " + plan.downlink);
    run_on_threads(kRanks, [&](Transport& transport) {
      Worker worker(config_of(plan, transport.rank()), Layout(kDim), transport);
      const bool holds_lr = plan.feedback.find("scale=lr") != std::string::npos;
      const double decay = plan.feedback.find("decay") != std::string::npos ? 0.9F : 1;
      for (std::uint64_t step = 0; step < 6; ++step) {
        const float lr = 0.25F / static_cast<float>(1 + step);
        Numbers gradient(kDim);
        bodies::fill_gradient(gradient, 3, transport.rank(), step);
        const auto weight = static_cast<double>(worker.weight());
        Dense mine(kDim);  // w_i g_i
        Dense owed(kDim);  // w_i a_i, and E
        worker.add_server_memory(owed);
        const Numbers memory = worker.memory();
        for (std::size_t i = 0; i < kDim; ++i) {
          mine[i] = weight * static_cast<double>(gradient[i]) * (holds_lr ? static_cast<double>(lr) : 1);
          owed[i] += weight * decay * static_cast<double>(memory[i]) + mine[i];
        }
        worker.step(gradient, {.lr = lr});
        const CompressionError measured = worker.measure_compression();
        const Dense before = sum_over_ranks(transport, owed);
        const Dense g = sum_over_ranks(transport, mine);
        Numbers applied(kDim);
        worker.write_update(applied);
        const Dense update(applied.begin(), applied.end());
        const std::uint64_t k = plan.downlink.empty() ? worker.stats().entries_sent : worker.stats().entries_total;
        EXPECT_EQ(measured.k, k);
        const Dense best = top(before, k);
        EXPECT_NEAR(measured.xi, norm(minus(best, update)) / norm(g), 1e-5 * (1 + measured.xi));
        EXPECT_NEAR(measured.gamma, norm(minus(before, best)) / norm(before), 1e-6);
        if (plan.downlink_feedback == "ef") {
          EXPECT_NEAR(measured.owed_norm2, std::pow(norm(minus(before, update)), 2), 1e-5 * std::pow(norm(before), 2));
        }
        if (plan.sparsifier == "dense") {
          EXPECT_LT(measured.xi, 1e-6);
          EXPECT_EQ(measured.gamma, 0);
        }
      }
    });
  }
}

TEST(CompressionOfAStep, NeedsAFinishedStepAndErrorFeedback) {
  run_on_threads(1, [&](Transport& transport) {
    Worker worker({.sparsifier = "topk:k=1", .exchange = "server"}, Layout(2), transport);
    EXPECT_THAT([&] { worker.measure_compression(); }, ThrowsMessage<UsageError>(HasSubstr("no finished step")));
    Worker dropping({.sparsifier = "topk:k=1", .feedback = "none", .exchange = "server"}, Layout(2), transport);
    const Numbers gradient = {1, 2};
    dropping.step(gradient);
    EXPECT_THAT([&] { dropping.measure_compression(); }, ThrowsMessage<UsageError>(HasSubstr("feedback ef")));
  });
}

// Each step's answer is the Top-k of that step's sum alone.
TEST(DownlinkWithoutMemory, DropsWhatItDoesNotSend) {
  for (const char* exchange : {"server", "sharded"}) {
    for (const char* codec : {"auto", "auto:values=bf16"}) {
      SCOPED_TRACE(std::string(exchange) + " " + codec);
      run_on_threads(2, [&](Transport& transport) {
        WorkerConfig config{.sparsifier = "dense", .exchange = exchange, .codec = codec};
        config.downlink = "threshold:lambda=1";
        config.downlink_feedback = "none";
        Worker worker(config, Layout(kDim), transport);
        double dropped = 0;
        for (std::uint64_t step = 0; step < 5; ++step) {
          Numbers gradient(kDim);
          bodies::fill_gradient(gradient, 3, 0, step);
          for (float& g : gradient) g = std::round(4 * g) / 4;  // exact as bf16: nothing is rounded
          worker.step(gradient);
          Numbers update(kDim);
          worker.write_update(update);
          for (std::size_t i = 0; i < kDim; ++i) {
            ASSERT_EQ(update[i], std::abs(gradient[i]) >= 1 ? gradient[i] : 0) << i;
            if (update[i] == 0) dropped += std::pow(static_cast<double>(gradient[i]), 2);
          }
          std::vector<double> owed(kDim);
          worker.add_server_memory(owed);
          EXPECT_EQ(std::count(owed.begin(), owed.end(), 0.0), static_cast<std::ptrdiff_t>(kDim));
          if (step == 2) worker.take_back_step();
          if (step == 2) worker.step(gradient);
        }
        const Dense all = sum_over_ranks(transport, {worker.stats().server_error});
        EXPECT_NEAR(all[0], dropped, 1e-9 * dropped);
      });
    }
  }
}

TEST(DownlinkWithoutMemory, IsSavedAndGivesItsMemoryToTheWorkers) {
  const auto make = [](const char* downlink_feedback, Transport& transport) {
    WorkerConfig config{.sparsifier = "topk:ratio=0.2", .exchange = "sharded"};
    config.downlink = "topk:ratio=0.1";
    config.downlink_feedback = downlink_feedback;
    return Worker(config, Layout(kDim), transport);
  };
  run_on_threads(2, [&](Transport& transport) {
    const auto step = [&](Worker& worker, std::uint64_t number) {
      Numbers gradient(kDim);
      bodies::fill_gradient(gradient, 3, transport.rank(), number);
      return worker.step(gradient).values;
    };
    for (const char* first : {"ef", "none"}) {
      for (const char* second : {"ef", "none"}) {
        SCOPED_TRACE(std::string(first) + " to " + second);
        Worker old = make(first, transport);
        for (std::uint64_t number = 0; number < 3; ++number) step(old, number);
        const auto owed_by = [&](const Worker& worker) {
          Dense owed(kDim);
          worker.add_server_memory(owed);
          const Numbers memory = worker.memory();
          for (std::size_t i = 0; i < kDim; ++i) owed[i] += static_cast<double>(memory[i]) / 2;
          return sum_over_ranks(transport, owed);
        };
        std::vector<std::vector<std::byte>> states;
        transport.all_gather(old.save(), states);
        Worker resumed = make(second, transport);
        resumed.load(states);
        const Dense before = owed_by(old);
        const Dense after = owed_by(resumed);
        for (std::size_t i = 0; i < kDim; ++i) ASSERT_NEAR(before[i], after[i], 1e-5) << i;
        if (first == second) {
          EXPECT_EQ(step(old, 3), step(resumed, 3));
          continue;
        }
        Worker adopting = make(second, transport);
        Worker* const olds[] = {&old};
        adopting.adopt(olds);
        const Dense adopted = owed_by(adopting);
        for (std::size_t i = 0; i < kDim; ++i) ASSERT_NEAR(before[i], adopted[i], 1e-5) << i;
      }
    }
    Worker keeping = make("ef", transport);
    WorkerConfig other{.sparsifier = "topk:ratio=0.2", .exchange = "sharded"};
    other.downlink = "topk:ratio=0.1";
    other.downlink_feedback = "none";
    EXPECT_THAT([&] { keeping.retune(other); }, ThrowsMessage<UsageError>(HasSubstr("the downlink's feedback")));
    other.downlink_feedback = "momentum";
    EXPECT_THAT([&] { Worker(other, Layout(kDim), transport); },
                ThrowsMessage<UsageError>(HasSubstr("neither ef nor none")));
  });
}

}  // namespace
}  // namespace sparsewire::measure_test
