// How samples are divided among the workers, and how much each worker counts.
#include "data/split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "data/random.h"
#include "loop/loop.h"
#include "loop/worker_weights.h"
#include "sparsewire/errors.h"
#include "unit/folder.h"
#include "unit/trained.h"

namespace sparsewire::train::split_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::uint32_t> some_labels(std::size_t samples, std::uint32_t classes) {
  Draws draws(1, Use::data);
  std::vector<std::uint32_t> labels(samples);
  for (std::uint32_t& label : labels) label = draws.below(classes);
  return labels;
}

std::vector<std::size_t> samples_of(const WorkerSamples& split, int worker) {
  std::vector<std::size_t> all;
  for (std::size_t i = 0; i < split.size(worker); ++i) all.push_back(split.sample(worker, i));
  return all;
}

TEST(Split, GivesEverySampleToOneWorker) {
  for (const SplitInfo& info : splits()) {
    for (const std::size_t samples : {8U, 9U, 103U}) {
      SCOPED_TRACE(std::string(info.example) + " " + std::to_string(samples));
      const std::vector<std::uint32_t> labels = some_labels(samples, 3);
      const SplitContext context{.labels = labels, .workers = 4, .seed = 2};
      const WorkerSamples split = make_split(info.example, context);
      std::multiset<std::size_t> all;
      for (int worker = 0; worker < 4; ++worker) {
        const auto own = samples_of(split, worker);
        EXPECT_EQ(std::set(own.begin(), own.end()).size(), own.size());
        EXPECT_EQ(samples_of(make_split(info.example, context), worker), own) << "the same again";
        all.insert(own.begin(), own.end());
      }
      const std::size_t times = info.name == "all" ? 4 : 1;
      EXPECT_EQ(all.size(), times * samples);
      for (std::size_t sample = 0; sample < samples; ++sample) EXPECT_EQ(all.count(sample), times) << sample;
    }
  }
}

TEST(Split, DependsOnTheSeed) {
  const std::vector<std::uint32_t> labels = some_labels(60, 3);
  for (const char* spec : {"iid", "shards", "dirichlet"}) {
    const auto with = [&](std::uint64_t seed) {
      return samples_of(make_split(spec, {.labels = labels, .workers = 4, .seed = seed}), 1);
    };
    EXPECT_NE(with(1), with(2)) << spec;
  }
}

TEST(Split, GivesSamplesInProportion) {
  const std::vector<std::uint32_t> labels = some_labels(100, 3);
  const auto sizes = [&](const std::string& spec, int workers) {
    const WorkerSamples split = make_split(spec, {.labels = labels, .workers = workers, .seed = 2});
    std::vector<std::size_t> all;
    for (int worker = 0; worker < workers; ++worker) all.push_back(split.size(worker));
    return all;
  };
  EXPECT_THAT(sizes("iid", 3), ElementsAre(33, 34, 33));
  EXPECT_THAT(sizes("iid:sizes=5/3/2", 3), ElementsAre(50, 30, 20));
  EXPECT_THAT(sizes("dirichlet:alpha=1,sizes=0.9/0.1", 2), ElementsAre(90, 10));
  EXPECT_THAT(sizes("dirichlet:alpha=0.001", 4), ElementsAre(25, 25, 25, 25));
  EXPECT_THAT(sizes("shards:per_worker=2", 5), ElementsAre(20, 20, 20, 20, 20));
}

// How many labels a worker has, mean over the workers.
double mean_labels(const std::string& spec, const std::vector<std::uint32_t>& labels, int workers) {
  double sum = 0;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const WorkerSamples split = make_split(spec, {.labels = labels, .workers = workers, .seed = seed});
    for (int worker = 0; worker < workers; ++worker) {
      std::set<std::uint32_t> seen;
      for (const std::size_t sample : samples_of(split, worker)) seen.insert(labels[sample]);
      sum += static_cast<double>(seen.size()) / workers / 10;
    }
  }
  return sum;
}

TEST(Split, ByLabelGivesAWorkerFewLabels) {
  const std::vector<std::uint32_t> labels = some_labels(6000, 10);
  EXPECT_NEAR(mean_labels("iid", labels, 20), 10, 1e-9);
  EXPECT_LE(mean_labels("shards:per_worker=1", labels, 20), 2);
  EXPECT_LE(mean_labels("shards:per_worker=2", labels, 20), 4);
  EXPECT_GT(mean_labels("shards:per_worker=2", labels, 20), 1.5);
  EXPECT_LT(mean_labels("dirichlet:alpha=0.01", labels, 20), 4);
  EXPECT_LT(mean_labels("dirichlet:alpha=0.1", labels, 20), mean_labels("dirichlet:alpha=1", labels, 20));
  EXPECT_NEAR(mean_labels("dirichlet:alpha=1000", labels, 20), 10, 1e-9);
}

// 200 shards of 300, two for each of 100 workers.
TEST(Split, ShardsAreRunsOfTheSortedSamples) {
  std::vector<std::uint32_t> labels(60000);
  for (std::uint32_t i = 0; i < labels.size(); ++i) labels[i] = i * 7 % 10;
  const WorkerSamples split = make_split("shards", {.labels = labels, .workers = 100, .seed = 3});
  for (int worker = 0; worker < 100; ++worker) {
    const auto own = samples_of(split, worker);
    ASSERT_EQ(own.size(), 600U);
    for (const std::size_t half : {0U, 300U}) {
      for (std::size_t i = 1; i < 300; ++i) {
        ASSERT_EQ(labels[own[half + i]], labels[own[half]]);
        ASSERT_EQ(own[half + i], own[half + i - 1] + 10) << "in their order";
      }
    }
  }
}

// With two classes of a Dirichlet distribution the share of one is Beta(alpha*2p, alpha*2(1-p)): mean p, variance
// p(1-p)/(2 alpha + 1).
TEST(Split, DirichletSharesHaveTheirMeanAndVariance) {
  std::vector<std::uint32_t> labels(40000);
  for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = i % 4 == 0 ? 1 : 0;
  constexpr int kWorkers = 400;
  for (const double alpha : {0.5, 3.0}) {
    const WorkerSamples split =
        make_split("dirichlet:alpha=" + std::to_string(alpha), {.labels = labels, .workers = kWorkers, .seed = 8});
    double mean = 0;
    double square = 0;
    for (int worker = 0; worker < kWorkers; ++worker) {
      double ones = 0;
      for (const std::size_t sample : samples_of(split, worker)) ones += labels[sample];
      const double share = ones / static_cast<double>(split.size(worker));
      mean += share / kWorkers;
      square += share * share / kWorkers;
    }
    EXPECT_NEAR(mean, 0.25, 1e-12) << "all samples are dealt";
    const double expected = 0.25 * 0.75 / (2 * alpha + 1) + 0.25 * 0.75 / 100;  // and of drawing 100 samples
    EXPECT_NEAR(square - mean * mean, expected, 0.2 * expected) << alpha;
  }
}

TEST(Split, RefusesWhatCannotBeDivided) {
  const std::vector<std::uint32_t> labels = some_labels(5, 2);
  const auto complaint = [&](const std::string& spec, int workers) -> std::string {
    try {
      make_split(spec, {.labels = labels, .workers = workers});
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(complaint("nosuch", 2), HasSubstr("'nosuch' is not a split; there are all, round_robin, iid"));
  EXPECT_THAT(complaint("iid:colour=red", 2), HasSubstr("unknown key 'colour'"));
  for (const char* spec : {"round_robin", "iid", "dirichlet"}) {
    EXPECT_EQ(complaint(spec, 5), "") << spec;
    EXPECT_THAT(complaint(spec, 6), HasSubstr("5 samples cannot be split between 6 workers: worker ")) << spec;
  }
  EXPECT_THAT(complaint("iid:sizes=1000/1", 2), HasSubstr("worker 1 would get none"));
  EXPECT_THAT(complaint("iid:sizes=1/2", 3), HasSubstr("sizes=1/2 has 2 numbers, and there are 3 workers"));
  EXPECT_THAT(complaint("iid:sizes=1/-2", 2), HasSubstr("not a list of positive numbers"));
  EXPECT_THAT(complaint("iid:sizes=", 2), HasSubstr("sizes="));
  EXPECT_THAT(complaint("shards:per_worker=2", 3), HasSubstr("5 samples cannot be cut into 6 shards"));
  EXPECT_THAT(complaint("dirichlet:alpha=0", 3), HasSubstr("alpha=0 is not in"));
}

TrainConfig dense(const Folder& folder) {
  folder.write("x", "1 1:1\n0 1:1 2:1\n1 2:2\n0 1:-1\n1 2:0.5\n0 2:-1\n1 1:3\n");
  TrainConfig config;
  config.problem = "logreg:batch=0,l2=0.01";
  config.data = folder / "x";
  config.workers = 3;
  config.sparsifier = "dense";
  config.exchange = "dense";
  config.steps = 20;
  config.check_every = 1;
  return config;
}

// Full gradients weighted by the samples of each worker are the gradient over all samples, however these are divided.
TEST(WorkerWeights, BySizeMakeTheMeanOverAllSamples) {
  const Folder folder;
  TrainConfig config = dense(folder);
  config.workers = 1;
  const double alone = trained(config).evaluation->find("train_objective").value();
  config.workers = 3;
  config.worker_weights = "size";
  for (const char* split :
       {"round_robin", "iid:sizes=4/2/1", "shards:per_worker=1", "dirichlet:alpha=0.1,sizes=3/2/2"}) {
    config.split = split;
    EXPECT_NEAR(trained(config).evaluation->find("train_objective").value(), alone, 1e-6) << split;
  }
  config.split = "iid:sizes=4/2/1";
  config.worker_weights = "";
  EXPECT_GT(std::abs(trained(config).evaluation->find("train_objective").value() - alone), 1e-4)
      << "without weights another mean";
}

// A worker of weight 0 is as if it were not there.
TEST(WorkerWeights, CountAsTheySay) {
  const Folder folder;
  TrainConfig config = dense(folder);
  config.worker_weights = "1,1,0";
  const auto with_poison = [&](const char* third, const char* sixth) {
    folder.write("x", std::string("1 1:1\n0 1:1 2:1\n") + third + "0 1:-1\n1 2:0.5\n" + sixth);
    return trained(config).weights_crc32c;
  };
  EXPECT_EQ(with_poison("1 2:2\n", "0 2:-1\n"), with_poison("0 2:9\n", "1 1:7\n"));
  config.worker_weights = "1,1,0.01";
  EXPECT_NE(with_poison("1 2:2\n", "0 2:-1\n"), with_poison("0 2:9\n", "1 1:7\n"));
}

TEST(WorkerWeights, AreRefusedWithAReason) {
  const auto problem = make_problem("downlink_toy", {.workers = 3});
  const auto complaint = [&](const std::string& written) -> std::string {
    try {
      worker_weights(written, *problem, 3);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(worker_weights("1,2,0.5", *problem, 3), ElementsAre(1, 2, 0.5));
  EXPECT_THAT(worker_weights("size", *problem, 3), ElementsAre(1, 1, 1));
  EXPECT_THAT(worker_weights("", *problem, 3), ElementsAre(1, 1, 1));
  EXPECT_EQ(complaint("1,2"), "--worker-weights 1,2 has 2 numbers, and there are 3 workers");
  EXPECT_THAT(complaint("1,-2,1"), HasSubstr("neither size nor a list"));
  EXPECT_THAT(complaint("1,,1"), HasSubstr("neither size nor a list"));
  EXPECT_THAT(complaint("equal"), HasSubstr("neither size nor a list"));
}

}  // namespace
}  // namespace sparsewire::train::split_test
