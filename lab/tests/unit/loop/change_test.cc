// Options that change in mid-training, compared with a loop that calls Worker::retune itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "loop/checkpoint.h"
#include "loop/loop.h"
#include "loop/optimiser.h"
#include "loop/schedule.h"
#include "loop/weights_file.h"
#include "sparsewire/errors.h"
#include "sparsewire/support/crc32c.h"
#include "sparsewire/worker.h"
#include "transport/star.h"
#include "unit/folder.h"
#include "unit/shared_error.h"

namespace sparsewire::train::change_test {
namespace {

using ::testing::HasSubstr;

struct Outcome {
  Result result;
  std::vector<std::string> said;
};

Outcome run(const TrainConfig& config, std::uint64_t stop_after = 0) {
  Outcome outcome;
  const auto problem = make_problem(config.problem, problem_place(config));
  run_on_threads(static_cast<int>(config.workers), [&](Transport& transport) {
    const bool is_root = transport.rank() == 0;
    Run one{.config = config, .problem = *problem, .transport = transport};
    if (is_root) one.log = [&](const std::string& message) { outcome.said.push_back(message); };
    if (stop_after != 0)
      one.stop_requested = [calls = std::uint64_t{0}, stop_after]() mutable { return ++calls == stop_after; };
    const Result mine = train(one);
    if (is_root) outcome.result = mine;
  });
  return outcome;
}

TrainConfig small(const Folder& folder) {
  TrainConfig config;
  config.problem = "downlink_toy:dim=40";
  config.workers = 3;
  config.sparsifier = "topk:k=4";
  config.downlink = "topk:k=6";
  config.optimiser = "sgd:momentum=0.5";
  config.lr = 0.02;
  config.steps = 30;
  config.seed = 5;
  config.eval_every = 5;
  config.checkpoint_dir = folder / "c";
  config.checkpoint_every = 10;
  config.metrics = folder / "m.jsonl";
  return config;
}

// The checksum of the weights if `before` holds for the steps before `at`, and `after` from there on.
std::uint32_t by_hand(const TrainConfig& before, std::uint64_t at, const TrainConfig& after) {
  std::uint32_t checksum = 0;
  const auto problem = make_problem(before.problem, problem_place(before));
  run_on_threads(static_cast<int>(before.workers), [&](Transport& transport) {
    Worker worker(worker_config(before), problem->layout(), transport);
    const auto optimiser = make_optimiser(before.optimiser, problem->layout().dim());
    std::vector<float> weights(problem->layout().dim());
    std::vector<float> gradient(weights.size());
    problem->initial_weights(weights);
    for (std::uint64_t step = 0; step < after.steps; ++step) {
      if (step == at) worker.retune(worker_config(after));
      const TrainConfig& now = step < at ? before : after;
      problem->gradient(transport.rank(), step, weights, gradient);
      const double lr = make_schedule(now.schedule, now.lr, now.steps).lr(step);
      worker.step(gradient, {.lr = static_cast<float>(lr)});
      worker.write_update(gradient);
      optimiser->apply(gradient, {.lr = lr}, weights);
    }
    if (transport.rank() == 0) checksum = crc32c(std::as_bytes(std::span(weights)));
  });
  return checksum;
}

struct Case {
  std::string names;
  std::function<void(TrainConfig&)> change;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"sparsifier,lr", [](auto& c) { c.sparsifier = "topk:k=9", c.lr = 0.01; }},
      {"sparsifier", [](auto& c) { c.sparsifier = "regtopk:k=3"; }},
      {"codec,downlink,downlink-codec",
       [](auto& c) { c.codec = "auto:values=bf16", c.downlink = "topk:k=3", c.downlink_codec = "auto:values=int8"; }},
      {"schedule,steps", [](auto& c) { c.schedule = "cosine", c.steps = 35; }},
      {"feedback", [](auto& c) { c.feedback = "ef:decay=0.9"; }},
  };
  return all;
}

TEST(Change, ContinuesAsAWorkerDoesThatIsRetuned) {
  for (const Case& one : cases()) {
    SCOPED_TRACE(one.names);
    const Folder folder;
    const TrainConfig before = small(folder);
    run(before, 20);
    TrainConfig after = before;
    one.change(after);
    const std::uint32_t expected = by_hand(before, 20, after);
    after.resume = true;
    after.change = one.names;
    const Outcome whole = run(after);
    EXPECT_EQ(whole.result.weights_crc32c, expected);
    EXPECT_NE(whole.result.weights_crc32c, by_hand(before, 20, before)) << "the change has an effect";
    ASSERT_EQ(whole.result.changes.size(), 1U);
    EXPECT_EQ(whole.result.changes[0]["step"], 20);
    EXPECT_THAT(whole.said, ::testing::Contains(HasSubstr("changed after step 20: --")));
  }
}

// Killed before and after the next checkpoint, and continued by the same command.
TEST(Change, IsResumedWithTheSameBits) {
  for (const std::uint64_t stop_after : {3U, 7U}) {
    for (const bool is_lost : {false, true}) {  // the checkpoint at the stop
      SCOPED_TRACE(std::to_string(stop_after) + (is_lost ? " lost" : ""));
      const Folder folder;
      const TrainConfig before = small(folder);
      run(before, 20);
      TrainConfig after = before;
      cases()[0].change(after);
      const std::uint32_t expected = by_hand(before, 20, after);
      after.resume = true;
      after.change = "lr,sparsifier";
      run(after, stop_after);
      if (is_lost) std::filesystem::remove_all(folder / ("c/step-000000" + std::to_string(20 + stop_after)));
      const Outcome again = run(after);
      EXPECT_EQ(again.result.weights_crc32c, expected);
      EXPECT_EQ(again.result.first_step, is_lost ? 20 : 20 + stop_after);
      ASSERT_EQ(again.result.changes.size(), 1U);
      EXPECT_EQ(
          again.result.changes[0].dump(),
          "{\"step\":20,\"changed\":{\"sparsifier\":{\"from\":\"topk:k=4\",\"to\":\"topk:k=9\"},\"lr\":{\"from\":0."
          "02,\"to\":0.01}}}");
      // In the metrics once, after the evaluation of that step.
      std::istringstream lines(folder.read("m.jsonl"));
      std::vector<std::string> seen;
      for (std::string line; std::getline(lines, line);) {
        const Json json = Json::parse(line);
        seen.push_back(std::to_string(json["step"].get<int>()) + (json.contains("changed") ? " changed" : ""));
        if (!json.contains("changed")) continue;
        EXPECT_EQ(json, again.result.changes[0]);
      }
      EXPECT_EQ(seen, (std::vector<std::string>{"5", "10", "15", "20", "20 changed", "25", "30"}));
    }
  }
}

TEST(Change, HappensMoreThanOnce) {
  const Folder folder;
  TrainConfig config = small(folder);
  run(config, 10);
  config.resume = true;
  config.change = "lr";
  config.lr = 0.01;
  run(config, 10);
  config.lr = 0.005;
  const Outcome outcome = run(config);
  ASSERT_EQ(outcome.result.changes.size(), 2U);
  EXPECT_EQ(outcome.result.changes[0]["step"], 10);
  EXPECT_EQ(outcome.result.changes[1]["step"], 20);
  EXPECT_EQ(outcome.result.changes[1]["changed"]["lr"]["from"], 0.01);
  const auto manifest = find_checkpoint(folder / "c", [](const std::string&) {});
  EXPECT_EQ(manifest->changes, outcome.result.changes);
}

TEST(Change, WorksWithAnotherNumberOfWorkers) {
  const Folder folder;
  TrainConfig config = small(folder);
  run(config, 20);
  config.resume = true;
  config.change = "sparsifier";
  config.sparsifier = "topk:k=9";
  config.workers = 2;
  EXPECT_TRUE(run(config).result.finished);
}

// A parameter server: no link between two other ranks is needed, neither by a change nor by evaluations or checkpoints.
TEST(Change, NeedsOnlyAStar) {
  const Folder folder;
  write_weights(folder / "w.npy", std::vector<float>(40, 3));
  TrainConfig config = small(folder);
  config.exchange = "server";
  config.init_weights = folder / "w.npy";
  const auto problem = make_problem(config.problem, problem_place(config));
  const auto finish = [&] {
    run_on_threads(3, [&](Transport& transport) {
      StarTransport star(transport);
      EXPECT_TRUE(train(train::Run{.config = config, .problem = *problem, .transport = star}).finished);
    });
  };
  EXPECT_NO_THROW(finish());
  config.steps = 40;
  config.resume = true;
  config.change = "lr,sparsifier";
  config.lr = 0.01;
  config.sparsifier = "topk:k=9";
  EXPECT_NO_THROW(finish());
}

TEST(Change, IsRefusedWithAReason) {
  const Folder folder;
  const TrainConfig before = small(folder);
  run(before, 20);
  const std::string metrics = folder.read("m.jsonl");
  const auto complaint = [&](const std::string& names, const std::function<void(TrainConfig&)>& change) {
    TrainConfig after = before;
    change(after);
    after.resume = true;
    after.change = names;
    const std::string error = error_of([&] { run(after); });
    EXPECT_EQ(folder.read("m.jsonl"), metrics) << "nothing has changed";
    return error;
  };
  const auto other_lr = [](auto& c) { c.lr = 0.01; };
  EXPECT_THAT(complaint("", other_lr), HasSubstr("--lr was 0.02 and is 0.01; to change this in mid-training, add "
                                                 "--change lr"));
  EXPECT_THAT(complaint("lr", [](auto& c) { c.lr = 0.01, c.sparsifier = "dense"; }),
              HasSubstr("--sparsifier was \"topk:k=4\" and is \"dense\"; to change this in mid-training, add --change "
                        "sparsifier,lr"));
  const std::string seed = complaint("lr", [](auto& c) { c.lr = 0.01, c.seed = 9; });
  EXPECT_THAT(seed, HasSubstr("--seed was 5 and is 9"));
  EXPECT_THAT(seed, ::testing::Not(HasSubstr("--change")));
  EXPECT_THAT(complaint("seed", other_lr),
              HasSubstr("--change: 'seed' is not an option that can change in mid-training; there are sparsifier"));
  EXPECT_THAT(complaint("lr,colour", other_lr), HasSubstr("--change: 'colour' is not an option"));
  // What the engine refuses.
  EXPECT_THAT(complaint("exchange", [](auto& c) { c.exchange = "server"; }),
              HasSubstr("'exchange' is not an option that can change"));
  EXPECT_THAT(complaint("scope", [](auto& c) { c.scope = "layer"; }),
              HasSubstr("'scope' is not an option that can change"));
  EXPECT_THAT(complaint("downlink", [](auto& c) { c.downlink = ""; }), HasSubstr("whether there is a downlink"));
  EXPECT_THAT(complaint("feedback", [](auto& c) { c.feedback = "none"; }),
              HasSubstr("feedback 'none' cannot continue"));
  EXPECT_THAT(complaint("sparsifier", [](auto& c) { c.sparsifier = "topk:k=99"; }), HasSubstr("k=99"));
  TrainConfig fresh = before;
  fresh.change = "lr";
  EXPECT_THAT(error_of([&] { run(fresh); }), HasSubstr("--change is for a training that is continued: add --resume"));
}

}  // namespace
}  // namespace sparsewire::train::change_test
