// Checkpoints: what they contain, which one is used after every kind of damage, and that a resumed training ends as if
// it had never stopped.
#include "loop/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "files/lock.h"
#include "loop/checkpoint_files.h"
#include "loop/loop.h"
#include "loop/run_or_fail.h"
#include "problems/problem.h"
#include "sparsewire/errors.h"
#include "sparsewire/support/crc32c.h"
#include "unit/folder.h"
#include "unit/shared_error.h"

namespace sparsewire::train::checkpoint_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

TrainConfig small(const Folder& folder) {
  TrainConfig config;
  config.problem = "downlink_toy:dim=50";
  config.workers = 3;
  config.sparsifier = "topk:k=4";
  config.downlink = "topk:k=6";
  config.steps = 20;
  config.seed = 5;
  config.lr = 0.02;
  config.checkpoint_dir = folder / "c";
  config.checkpoint_every = 10;
  return config;
}

struct Outcome {
  Result result;
  std::vector<std::string> said;
};

Outcome run(const TrainConfig& config, const std::string& data) {
  Outcome outcome;
  const auto workers = static_cast<int>(config.workers);
  const auto problem = make_problem(config.problem, {.workers = workers, .seed = config.seed, .data = data});
  run_on_threads(workers, [&](Transport& transport) {
    const bool is_root = transport.rank() == 0;
    Run one{.config = config, .problem = *problem, .transport = transport};
    if (is_root) one.log = [&](const std::string& message) { outcome.said.push_back(message); };
    const Result mine = train(one);
    if (is_root) outcome.result = mine;
  });
  return outcome;
}

Outcome run(const TrainConfig& config) { return run(config, config.data); }

Outcome resume(TrainConfig config, std::uint64_t steps) {
  config.resume = true;
  config.steps = steps;
  return run(config);
}

std::vector<std::string> names(const std::string& folder) {
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(folder)) found.push_back(entry.path().filename().string());
  std::sort(found.begin(), found.end());
  return found;
}

TEST(Checkpoint, HoldsTheFilesItPromises) {
  const Folder folder;
  run(small(folder));
  EXPECT_EQ(names(folder / "c"), (std::vector<std::string>{"step-00000010", "step-00000020"}));
  EXPECT_EQ(names(folder / "c/step-00000020"),
            (std::vector<std::string>{"manifest.json", "model.state", "rank-0.state", "rank-1.state", "rank-2.state"}));
  const Json manifest = Json::parse(folder.read("c/step-00000020/manifest.json"));
  EXPECT_EQ(manifest["step"], 20);
  EXPECT_EQ(manifest["workers"], 3);
  EXPECT_EQ(manifest["files"].size(), 4U);
  std::vector<std::string> checksums;
  for (const Json& file : manifest["files"]) checksums.push_back(file["crc32c"]);
  std::sort(checksums.begin(), checksums.end());
  EXPECT_EQ(std::unique(checksums.begin(), checksums.end()), checksums.end()) << "each has a checksum of its own";
}

TEST(Checkpoint, KeepsAsManyAsAsked) {
  for (const std::uint64_t keep : {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{3}}) {
    const Folder folder;
    TrainConfig config = small(folder);
    config.checkpoint_every = 4;
    config.keep = keep;
    fs::create_directories(folder / "c/step-00000003");  // what a kill left
    folder.write("c/step-00000003/rank-0.state", "half");
    folder.write("c/notes.txt", "not ours");
    fs::create_directories(folder / "c/step-12");  // nor is this one
    run(config);
    std::vector<std::string> expected{"step-00000012", "step-00000016", "step-00000020"};
    expected.erase(expected.begin(), expected.end() - static_cast<std::ptrdiff_t>(keep));
    expected.insert(expected.begin(), "notes.txt");
    expected.push_back("step-12");
    EXPECT_EQ(names(folder / "c"), expected);
  }
}

struct Method {
  const char* name;
  std::function<void(TrainConfig&)> change;
};

// Every kind of state there is: memories, a velocity, a calibration, RegTop-k's last round, servers, optimisers.
const std::vector<Method>& methods() {
  static const std::vector<Method> all{
      {"topk both ways", [](auto&) {}},
      {"server", [](auto& c) { c.exchange = "server"; }},
      {"randomk", [](auto& c) { c.sparsifier = "randomk:k=5", c.downlink = "randomk:k=9"; }},
      {"rtopk", [](auto& c) { c.sparsifier = "rtopk:k=5", c.downlink = ""; }},
      {"threshold", [](auto& c) { c.sparsifier = "threshold:ratio=0.1,calibrate=12", c.downlink = ""; }},
      {"regtopk", [](auto& c) { c.sparsifier = "regtopk:k=5", c.downlink = "", c.exchange = "allgather"; }},
      {"velocity", [](auto& c) { c.feedback = "momentum:m=0.8", c.lr = 0.005; }},
      {"scale", [](auto& c) { c.feedback = "ef:scale=lr,decay=0.9"; }},
      {"warm-up", [](auto& c) { c.sparsifier = "topk:ratio=0.05,warmup_from=0.5,warmup_steps=15"; }},
      {"auto", [](auto& c) { c.exchange = "auto", c.downlink = "", c.sparsifier = "threshold:lambda=30"; }},
      {"dense", [](auto& c) { c.exchange = "dense", c.sparsifier = "dense", c.downlink = ""; }},
      {"int8", [](auto& c) { c.codec = "auto:values=int8", c.downlink_codec = "auto:values=bf16"; }},
      {"momentum", [](auto& c) { c.optimiser = "sgd:momentum=0.9,nesterov=true", c.lr = 0.002; }},
      {"adam", [](auto& c) { c.optimiser = "adam", c.schedule = "step:every=7", c.clip = 20; }},
      {"local", [](auto& c) { c.local_steps = 3, c.lr = 0.005; }},
      {"outer momentum",
       [](auto& c) {
         c.local_steps = 2, c.lr = 0.005, c.outer_lr = 0.7, c.outer_momentum = 0.9;
         c.average = "senders";
       }},
      {"local adam", [](auto& c) { c.local_steps = 2, c.optimiser = "adamw", c.lr = 0.05; }},
      {"layer", [](auto& c) { c.scope = "layer"; }}};
  return all;
}

TEST(Checkpoint, ContinuesBitForBit) {
  for (const Method& method : methods()) {
    SCOPED_TRACE(method.name);
    const Folder whole_folder;
    TrainConfig config = small(whole_folder);
    method.change(config);
    config.checkpoint_dir = "";
    const Result whole = run(config).result;
    for (const std::uint64_t stop : {std::uint64_t{1}, std::uint64_t{13}, std::uint64_t{20}}) {
      const Folder folder;
      config.checkpoint_dir = folder / "c";
      config.steps = stop;
      run(config);
      const Outcome resumed = resume(config, 20);
      EXPECT_EQ(resumed.result.weights_crc32c, whole.weights_crc32c) << stop;
      EXPECT_EQ(resumed.result.first_step, stop);
      EXPECT_EQ(resumed.result.totals.bytes_up, whole.totals.bytes_up);
      EXPECT_EQ(resumed.result.totals.bytes_served, whole.totals.bytes_served);
      EXPECT_EQ(resumed.result.totals.total_error, whole.totals.total_error);
      EXPECT_EQ(resumed.result.totals.loss, whole.totals.loss);
      const std::string all_done = stop == 20 ? ", where all steps are done: for more, raise --steps" : "";
      EXPECT_THAT(resumed.said,
                  ::testing::ElementsAre("resuming from '" + checkpoint_path(folder / "c", stop) + "'" + all_done));
      config.steps = 20;
    }
  }
}

TEST(Checkpoint, ContinuesWithAnotherNumberOfWorkers) {
  for (const Method& method : methods()) {
    for (const std::uint64_t workers : {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{5}}) {
      SCOPED_TRACE(testing::Message() << method.name << ' ' << workers);
      const Folder folder;
      TrainConfig config = small(folder);
      method.change(config);
      config.steps = 10;
      const Result before = run(config).result;
      config.workers = workers;
      const Outcome resumed = resume(config, 20);
      EXPECT_EQ(resumed.result.step, 20U);
      EXPECT_GE(resumed.result.totals.bytes_up, before.totals.bytes_up);
      EXPECT_GE(resumed.result.totals.total_error, before.totals.total_error);
      ASSERT_EQ(resumed.said.size(), 2U);
      EXPECT_THAT(resumed.said[1], HasSubstr("by 3 workers, and now there are " + std::to_string(workers)));
      // Bit for bit also with a stop at step 15.
      const Folder other;
      fs::create_directories(other / "c");
      fs::copy(folder / "c/step-00000010", other / "c/step-00000010", fs::copy_options::recursive);
      config.checkpoint_dir = other / "c";
      resume(config, 15);
      EXPECT_EQ(resume(config, 20).result.weights_crc32c, resumed.result.weights_crc32c);
    }
  }
}

// One file of the newest checkpoint is damaged: the training continues from the older one.
class Damage : public testing::Test {
 protected:
  Damage() : config_(small(folder_)) {
    config_.steps = 10;
    run(config_);
    config_.resume = true;
    config_.steps = 20;
    whole_ = run(config_).result.weights_crc32c;
  }

  // Resumes from a copy of the checkpoints in which one file has other bytes.
  void with(const std::string& file, const std::string& bytes, const std::string& what) {
    SCOPED_TRACE(file + ": " + what);
    const Folder copy;
    fs::copy(folder_ / "c", copy / "c", fs::copy_options::recursive);
    copy.write("c/step-00000020/" + file, bytes);
    TrainConfig config = config_;
    config.checkpoint_dir = copy / "c";
    const Outcome outcome = run(config);
    EXPECT_EQ(outcome.result.weights_crc32c, whole_);
    EXPECT_EQ(outcome.result.first_step, 10U);
    ASSERT_EQ(outcome.said.size(), 2U);
    EXPECT_THAT(outcome.said[0], HasSubstr("damaged: "));
    EXPECT_THAT(outcome.said[0], HasSubstr(file));
    EXPECT_THAT(outcome.said[0], HasSubstr("going back to step 10"));
    EXPECT_EQ(resume(config, 20).result.first_step, 20U) << "an undamaged one took its place";
  }

  std::vector<std::string> files() const { return names(folder_ / "c/step-00000020"); }

  const Folder folder_;
  TrainConfig config_;
  std::uint32_t whole_ = 0;
};

TEST_F(Damage, OfAFileThatIsCutFallsBack) {
  for (const std::string& file : files()) {
    const std::string bytes = folder_.read("c/step-00000020/" + file);
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{1}, std::size_t{3}, bytes.size() / 2, bytes.size() - 2}) {
      with(file, bytes.substr(0, size), "cut to " + std::to_string(size));
    }
  }
}

TEST_F(Damage, OfOneBitFallsBack) {
  for (const std::string& file : files()) {
    const std::string bytes = folder_.read("c/step-00000020/" + file);
    for (std::size_t i = 0; i < 12; ++i) {
      std::string flipped = bytes;
      const std::size_t at = i * (bytes.size() - 3) / 11;
      if (flipped[at] == ' ' || flipped[at] == '\n') continue;  // spaces of the manifest do not matter
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << (i % 7)));
      with(file, flipped, "bit " + std::to_string(at));
    }
  }
}

TEST_F(Damage, OfFilesThatAreSwappedFallsBack) {
  with("model.state", folder_.read("c/step-00000010/model.state"), "that of step 10");
  with("rank-1.state", folder_.read("c/step-00000020/rank-2.state"), "that of rank 2");
  with("manifest.json", folder_.read("c/step-00000010/manifest.json"), "that of step 10");
  with("manifest.json", "{}", "empty");
  with("manifest.json", "null", "null");
  const std::string nested = std::string(100'000, '[') + std::string(100'000, ']');
  with("manifest.json", nested, "nested");
  with("manifest.json", "{\"crc32c\": \"0\", \"x\": " + nested + "}", "an object that is nested");
}

TEST_F(Damage, OfAMissingFileFallsBack) {
  for (const char* name : {"model.state", "rank-0.state", "rank-2.state"}) {
    const Folder copy;
    fs::copy(folder_ / "c", copy / "c", fs::copy_options::recursive);
    fs::remove(copy / ("c/step-00000020/" + std::string(name)));
    TrainConfig config = config_;
    config.checkpoint_dir = copy / "c";
    EXPECT_EQ(run(config).result.weights_crc32c, whole_);
  }
}

TEST_F(Damage, WithoutAManifestIsALeftover) {
  fs::remove(folder_ / "c/step-00000020/manifest.json");
  const Outcome outcome = run(config_);
  EXPECT_EQ(outcome.result.weights_crc32c, whole_);
  EXPECT_EQ(outcome.result.first_step, 10U);
  EXPECT_EQ(outcome.said.size(), 1U);
}

// With a correct checksum, so that only its contents show that it is wrong.
TEST_F(Damage, OfAManifestWithACorrectChecksumFallsBack) {
  const Json good = Json::parse(folder_.read("c/step-00000020/manifest.json"));
  const auto with_changed = [&](const char* what, const std::function<void(Json&)>& change) {
    Json json = good;
    json.erase("crc32c");
    change(json);
    const std::string text = json.dump();
    char checksum[9];
    std::snprintf(checksum, sizeof checksum, "%08x", crc32c(std::as_bytes(std::span(text))));
    json["crc32c"] = checksum;
    with("manifest.json", json.dump(2), what);
  };
  for (const Json& workers : {Json(0), Json(-1), Json(3.5), Json(4), Json(1ULL << 62), Json("3"), Json(nullptr)}) {
    with_changed("workers", [&](Json& json) { json["workers"] = workers; });
  }
  with_changed("step", [](Json& json) { json["step"] = 20.5; });
  with_changed("format", [](Json& json) { json["format"] = 2; });
  with_changed("files", [](Json& json) { json["files"]["rank-1.state"] = 7; });
  with_changed("all files", [](Json& json) { json["files"] = "none"; });
  with_changed("config", [](Json& json) { json["config"]["no_such"] = 1; });
}

// Reading a pipe could wait for ever.
TEST_F(Damage, OfAFileThatIsAPipeFallsBack) {
  for (const char* name : {"rank-1.state", "manifest.json"}) {
    const Folder copy;
    fs::copy(folder_ / "c", copy / "c", fs::copy_options::recursive);
    const std::string path = copy / "c/step-00000020/" + name;
    fs::remove(path);
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    TrainConfig config = config_;
    config.checkpoint_dir = copy / "c";
    EXPECT_EQ(run(config).result.first_step, 10U);
  }
}

TEST_F(Damage, OfAllIsAnError) {
  folder_.write("c/step-00000010/rank-0.state", "x");
  folder_.write("c/step-00000020/rank-1.state", "x");
  const std::string error = error_of([&] { run(config_); });
  EXPECT_THAT(error, HasSubstr("usage: all checkpoints in '"));
  EXPECT_THAT(error, HasSubstr("step-00000020/rank-1.state' has 1 bytes, not "));
}

TEST(Checkpoint, OfAnotherTrainingIsRefused) {
  const Folder folder;
  const TrainConfig config = small(folder);
  run(config);
  const auto refuses = [&](const std::function<void(TrainConfig&)>& change, const std::string& says) {
    TrainConfig other = config;
    other.resume = true;
    change(other);
    const std::string error = error_of([&] { run(other); });
    EXPECT_THAT(error, HasSubstr("usage: "));
    EXPECT_THAT(error, HasSubstr(says));
  };
  refuses([](auto& c) { c.problem = "downlink_toy:dim=60"; },
          "is of another training: --problem was \"downlink_toy:dim=50\" and is \"downlink_toy:dim=60\"");
  refuses([](auto& c) { c.sparsifier = "dense"; }, "--sparsifier was \"topk:k=4\" and is \"dense\"");
  refuses([](auto& c) { c.seed = 6; }, "--seed was 5 and is 6");
  refuses([](auto& c) { c.lr = 0.5; }, "--lr was 0.02 and is 0.5");
  refuses([](auto& c) { c.optimiser = "adam"; }, "--optimiser was");
  refuses([](auto& c) { c.steps = 19; }, "is beyond --steps 19");
  refuses([](auto& c) { c.resume = false; }, "has checkpoints of an earlier training");
}

TEST(Checkpoint, DoesNotTouchOtherFiles) {
  const Folder folder;
  TrainConfig config = small(folder);
  config.keep = 1;
  for (const char* name : {"c/step-00000007", "c/step-00000010"}) fs::create_directories(folder / name);
  folder.write("c/step-00000007/mine", "precious");
  folder.write("c/step-00000010/mine", "precious");
  run(config);
  EXPECT_EQ(folder.read("c/step-00000007/mine"), "precious");
  EXPECT_EQ(folder.read("c/step-00000010/mine"), "precious");
  EXPECT_EQ(resume(config, 30).result.first_step, 20U);
}

TEST(Checkpoint, IsForOneTrainingAtATime) {
  const Folder folder;
  const TrainConfig config = small(folder);
  fs::create_directories(config.checkpoint_dir);
  {
    const files::FolderLock lock(config.checkpoint_dir);
    EXPECT_THAT(error_of([&] { run(config); }), HasSubstr("is in use by another training"));
  }
  EXPECT_EQ(error_of([&] { run(config); }), "none");
}

TEST(Checkpoint, MayBeInAFolderWhoseNameIsNotUtf8) {
  const Folder folder;
  TrainConfig config = small(folder);
  config.checkpoint_dir = folder / "n\xff";
  run(config);
  EXPECT_EQ(resume(config, 30).result.first_step, 20U);
}

// Weights overflow a step before a gradient or a loss shows it.
TEST(Checkpoint, IsNeverOfWeightsThatAreNotFinite) {
  const Folder folder;
  TrainConfig config = small(folder);
  config.sparsifier = "dense";
  config.downlink = "";
  config.lr = 3;
  config.steps = 1000;
  config.checkpoint_every = 1;
  config.keep = 1;
  const std::string error = error_of([&] { run(config); });
  EXPECT_THAT(error, HasSubstr("failed: diverged in step "));
  const auto found = find_checkpoint(config.checkpoint_dir, [](const std::string&) {});
  ASSERT_TRUE(found);
  EXPECT_THAT(error, HasSubstr("the last checkpoint is '" + found->path));
  const std::vector<RankState> saved = read_checkpoint(*found);
  for (const float weight : saved[0].weights) ASSERT_TRUE(std::isfinite(weight));
}

TEST(Checkpoint, KnowsItsDataByTheirContents) {
  const Folder folder;
  folder.write("a", "+1 1:1\n-1 2:1\n+1 1:2\n");
  folder.write("b", "+1 1:1\n-1 2:1\n+1 1:2\n");
  TrainConfig config = small(folder);
  config.problem = "logreg";
  config.sparsifier = "topk:k=1";
  config.downlink = "";
  config.data = folder / "a";
  run(config);
  config.data = folder / "b";
  EXPECT_EQ(resume(config, 30).result.first_step, 20U);
  folder.write("b", "+1 1:1\n-1 2:1\n+1 1:3\n");
  EXPECT_THAT(error_of([&] { resume(config, 40); }), HasSubstr("is of other data ("));
  // A data set has a folder, which the problem knows, and no --data.
  config.data = "";
  config.resume = true;
  config.steps = 40;
  EXPECT_THAT(error_of([&] { run(config, folder / "b"); }),
              AllOf(HasSubstr(") than the data set (21 bytes, CRC-32C "), HasSubstr("the same data set (--data-dir)")));
}

TEST(Checkpoint, IsNotNeededToStart) {
  const Folder folder;
  const Outcome outcome = resume(small(folder), 20);
  EXPECT_THAT(outcome.said.at(0), HasSubstr("no checkpoint in '"));
  EXPECT_EQ(outcome.result.first_step, 0U);
}

TEST(Checkpoint, ThatCannotBeWrittenIsReportedBeforeTheFirstStep) {
  const Folder folder;
  folder.write("file", "x");
  TrainConfig config = small(folder);
  config.checkpoint_dir = folder / "file/c";
  EXPECT_THAT(error_of([&] { run(config); }), HasSubstr("failed: cannot write '"));
}

}  // namespace
}  // namespace sparsewire::train::checkpoint_test
