#include "report/collect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <string>

#include "report/snapshot.h"
#include "sparsewire/errors.h"
#include "unit/folder.h"

namespace sparsewire::report::collect_test {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kLine = R"({"step":10,"loss":0.5,"lr":0.1,"entries_total":5,"density":0.25,"test_loss":0.75,)"
                              R"("total_bytes_up":7,"steps":10})"
                              "\n";

void write_plan(const Folder& folder, const std::string& version = "") {
  folder.write("plan.json", R"({"schema": 1, "methods": [{"name": "dense", "spec": "dense"},
    {"name": "small", "spec": "topk | name=small"}], "ratio": ["0.1", "0.3"], "weights": 20,
    "data": {"name": "a9a", "contents": ""}, "config": {"problem": "logreg", "workers": 2, "steps": 10},
    "environment": {"sparsewire": ")" +
                                version + R"("}})");
}

void write_run(const Folder& folder, const std::string& id, const std::string& phase, const std::string& method,
               const std::string& ratio, const std::string& status = "finished") {
  fs::create_directories(folder / ("runs/" + id));
  folder.write("runs/" + id + "/config.json", R"({"problem": "logreg", "downlink": "", "json": "x", "lr": 0.1})");
  folder.write("runs/" + id + "/metrics.jsonl", kLine);
  folder.write("runs/" + id + "/result.json",
               R"({"phase": ")" + phase + R"(", "method": ")" + method + R"(", "ratio": ")" + ratio +
                   R"(", "lr": 0.1, "own": {"mu": "4"}, "seed": 3, "status": ")" + status + R"(", "seconds": 1.5,
                   "diverged_at": null, "final_train_loss": 0.25, "totals": {"bytes_up": 7},
                   "start": {"step": 0, "train_loss": 2, "test_loss": 3}})");
}

std::vector<std::string> labels(const Document& document) {
  std::vector<std::string> all;
  for (const ReportedMethod& method : document.methods) all.push_back(method.label);
  return all;
}

TEST(Collect, ReadsAStudyThatIsNotFinished) {
  const Folder folder;
  write_plan(folder, "0.1.0");
  write_run(folder, "aa", "judge", "topk | name=small", "0.3");
  write_run(folder, "bb", "tune", "dense", "", "diverged");
  fs::create_directories(folder / "runs/.unfinished-cc");
  fs::create_directories(folder / "runs/dd");
  folder.write("runs/dd/result.json", R"({"phase": "ju)");
  const Document document = collect({folder / "."});
  EXPECT_EQ(document.kind, "study");
  EXPECT_FALSE(document.is_finished);
  EXPECT_EQ(document.title, "Study: logreg on a9a");
  EXPECT_EQ(document.problem, "logreg on a9a: 20 weights, 2 workers, 10 steps");
  EXPECT_THAT(labels(document), ElementsAre("dense", "small, ratio 0.1", "small, ratio 0.3"));
  EXPECT_EQ(document.methods[2].ratio, 0.3);
  ASSERT_EQ(document.runs.size(), 2U);
  const ReportedRun& tuned = document.runs[0];
  EXPECT_EQ(tuned.id + tuned.phase + tuned.status, "bbtunediverged");
  EXPECT_FALSE(tuned.is_chosen);
  EXPECT_THAT(tuned.series.rows(), IsEmpty()) << "to keep the page small";
  const ReportedRun& judged = document.runs[1];
  EXPECT_TRUE(judged.is_chosen);
  EXPECT_EQ(judged.method, 2U);
  EXPECT_EQ(judged.seed, 3U);
  EXPECT_EQ(judged.lines, 1U);
  EXPECT_EQ(judged.result.at("own"), "mu=4");
  EXPECT_EQ(judged.result.at("train_loss"), 0.25);
  EXPECT_EQ(judged.config, Json::parse(R"({"problem": "logreg", "lr": 0.1})"));
  ASSERT_EQ(judged.series.rows().size(), 2U) << "the start, and the line";
  const auto at = [&](std::size_t row, const char* name) {
    return judged.series.at(judged.series.rows()[row], judged.series.find(name));
  };
  EXPECT_EQ(at(0, "step"), 0);
  EXPECT_EQ(at(0, "test_loss"), 3);
  EXPECT_EQ(at(0, "total_bytes_up"), 0);
  EXPECT_TRUE(is_missing(at(0, "loss")));
  EXPECT_EQ(at(1, "train_loss"), 0.25);
  EXPECT_THAT(document.notices, Contains("the study was made by sparsewire 0.1.0"));
  EXPECT_THAT(document.notices, Contains(HasSubstr("the run 'dd' was left out: ")));
  EXPECT_THAT(document.notices, Contains("the study is not finished: 1 tune run, 1 judge run are done, 1 under way or "
                                         "broken off; the same command continues it"));
}

TEST(Collect, ReadsWhatIsLeftOfADamagedStudy) {
  const Folder folder;
  folder.write("plan.json", "{\"schema\": 1, \"meth");
  folder.write("summary.json", R"({"schema": 2, "methods": "none"})");
  write_run(folder, "aa", "judge", "topk", "0.3");
  folder.write("runs/aa/metrics.jsonl", std::string(kLine) + "{\"step\":");
  write_run(folder, "bb", "judge", "topk", "0.3");
  fs::remove(folder / "runs/bb/metrics.jsonl");
  fs::remove(folder / "runs/bb/config.json");
  const Document document = collect({folder / "."});
  EXPECT_THAT(labels(document), ElementsAre("topk, ratio 0.3"));
  EXPECT_EQ(document.runs.size(), 2U);
  EXPECT_EQ(document.summary.at("schema"), 2);
  EXPECT_THAT(document.notices, Contains(HasSubstr("plan.json' is damaged: ")));
  EXPECT_THAT(document.notices, Contains(HasSubstr("files of schema 2; this version knows 1")));
  EXPECT_THAT(document.notices, Contains("run aa: ends in mid-line; the last line was left out"));
  EXPECT_THAT(document.notices, Contains(HasSubstr("bb/metrics.jsonl' is no file")));
}

TEST(Collect, ShowsARunThatTwoMethodsShareTwice) {
  const Folder folder;
  write_plan(folder);
  folder.write("summary.json", "{\"schema\": 1}");
  write_run(folder, "aa", "judge", "dense", "");
  folder.write("runs.csv", "id,phase,method,ratio\naa,judge,dense,\naa,judge,\"topk | name=small\",0.1\n");
  const Document document = collect({folder / "."});
  EXPECT_TRUE(document.is_finished);
  ASSERT_EQ(document.runs.size(), 2U);
  EXPECT_EQ(document.runs[0].id, "aa");
  EXPECT_EQ(document.runs[1].id, "aa-2");
  EXPECT_EQ(document.runs[1].method, 1U);
  EXPECT_THAT(document.notices, IsEmpty());
}

TEST(Collect, ReadsAComparison) {
  const Folder folder;
  fs::create_directories(folder / "c");
  folder.write("secret.jsonl", kLine);
  folder.write("c/summary.json", R"({"config": {"problem": "mlp", "workers": 2, "steps": 10, "seed": 5, "lr": 0.1},
    "ratio": 0.1, "methods": [
    {"method": "dense", "sparsifier": "dense", "metrics": "dense.jsonl", "seconds": 2.5, "test_loss": 0.5},
    {"method": "topk", "sparsifier": "topk:ratio=0.1", "downlink": "topk:ratio=0.1", "metrics": "topk.jsonl",
     "failure": "diverged in step 12: the loss"},
    {"method": "evil", "sparsifier": "x", "metrics": "../secret.jsonl"}]})");
  for (const char* const name : {"c/dense.jsonl", "c/topk.jsonl", "c/rtopk.jsonl"}) folder.write(name, kLine);
  const Document document = collect({folder / "c"});
  EXPECT_EQ(document.kind, "compare");
  EXPECT_FALSE(document.is_finished);
  EXPECT_EQ(document.problem, "mlp: 20 weights, 2 workers, 10 steps");
  EXPECT_THAT(labels(document), ElementsAre("dense", "topk", "evil", "rtopk"));
  EXPECT_FALSE(document.methods[0].ratio);
  EXPECT_EQ(document.methods[1].ratio, 0.1);
  EXPECT_EQ(document.methods[1].spec, "topk:ratio=0.1 | downlink=topk:ratio=0.1");
  EXPECT_EQ(document.runs[0].seconds, 2.5);
  EXPECT_EQ(document.runs[0].seed, 5U);
  EXPECT_EQ(document.runs[0].result.at("test_loss"), 0.5);
  EXPECT_EQ(document.runs[1].status, kDiverged);
  EXPECT_EQ(document.runs[1].diverged_at, 12U);
  EXPECT_EQ(document.runs[1].config.at("downlink"), "topk:ratio=0.1");
  EXPECT_THAT(document.runs[2].series.rows(), IsEmpty()) << "no files from elsewhere";
}

TEST(Collect, NamesRunsByTheirFiles) {
  const Folder folder;
  fs::create_directories(folder / "b");
  for (const char* const name : {"x.jsonl", "y.jsonl", "y.log", "b/x.jsonl"}) folder.write(name, kLine);
  const Document document = collect({folder / "x.jsonl", folder / "b/x.jsonl", folder / "y.jsonl", folder / "y.log"});
  EXPECT_THAT(labels(document), ElementsAre(folder / "x.jsonl", folder / "b/x.jsonl", "y.jsonl", "y.log"));
  EXPECT_THAT(labels(collect({folder / "."})), ElementsAre("x", "y")) << "a folder of metrics";
  CollectOptions options;
  options.title = "My title";
  EXPECT_EQ(collect({folder / "y.log"}, options).title, "My title");
}

TEST(Collect, KnowsWhetherATrainingIsFinished) {
  const Folder folder;
  folder.write("m.jsonl", kLine);
  const auto status = [&](bool is_live) {
    CollectOptions options;
    options.is_live = is_live;
    const Document document = collect({folder / "m.jsonl"}, options);
    return document.runs[0].status + (document.is_finished ? ", all" : "");
  };
  EXPECT_EQ(status(true), "finished, all");
  folder.write("m.jsonl", "{\"step\":5,\"loss\":1,\"steps\":10}\n");
  EXPECT_EQ(status(true), "running");
  EXPECT_EQ(status(false), "running") << "written just now";
  fs::last_write_time(folder / "m.jsonl", fs::file_time_type::clock::now() - std::chrono::hours(1));
  EXPECT_EQ(status(false), "interrupted");
  EXPECT_EQ(status(true), "running");
  folder.write("m.jsonl", "{\"step\":5,\"loss\":1}\n");
  EXPECT_EQ(status(true), "running") << "how many steps there are is not known";
  EXPECT_EQ(status(false), "finished, all");
  folder.write("m.jsonl", "{\"step\":5,\"loss\":null,\"steps\":10}\n");
  EXPECT_EQ(status(true), "diverged, all");
}

TEST(Collect, ReadsReportsOfTrainAndReproduce) {
  const Folder folder;
  folder.write("t.json",
               "{\n\"config\": {\"metrics\": \"gone/m.jsonl\", \"sparsifier\": \"topk\", \"seed\": 4}, "
               "\"step\": 10, \"test_loss\": 0.5, \"seconds\": 3, \"weights_crc32c\": \"00\"}");
  folder.write("m.jsonl", kLine);
  const Document trained = collect({folder / "t.json"});
  EXPECT_EQ(trained.runs.at(0).series.rows().size(), 1U) << "found beside it";
  EXPECT_EQ(trained.runs[0].seed, 4U);
  EXPECT_EQ(trained.runs[0].result.at("test_loss"), 0.5);
  EXPECT_EQ(trained.methods[0].spec, "topk");
  folder.write("r.json", "{\"name\": \"toy\", \"claim\": \"c\", \"measured\": []}");
  const Document reproduced = collect({folder / "r.json"});
  EXPECT_EQ(reproduced.kind, "reproduce");
  EXPECT_EQ(reproduced.reproduction.at("table"), nullptr);
  EXPECT_THROW(collect({folder / "r.json", folder / "m.jsonl"}), UsageError);
}

TEST(Collect, RefusesWhatCannotBeShown) {
  const Folder folder;
  folder.write("rubbish", "a\xff\nb\n");
  folder.write("empty", "");
  folder.write("other.json", "{\n\"a\": 1}");
  folder.write("cut.json", "{\n\"a\":");
  fs::create_directories(folder / "nothing");
  for (const char* const name : {"rubbish", "empty", "other.json", "cut.json", "nothing", "none"}) {
    EXPECT_THROW(collect({folder / name}), UsageError) << name;
  }
  folder.write("m.jsonl", kLine);
  EXPECT_THROW(collect({folder / "m.jsonl", folder / "nothing"}), UsageError);
}

TEST(Collect, WaitsForWhatIsFollowed) {
  const Folder folder;
  folder.write("half.jsonl", "{\"step\":");
  CollectOptions options;
  options.is_live = true;
  const Document document = collect({folder / "none.jsonl", folder / "half.jsonl"}, options);
  EXPECT_THAT(document.notices, Contains(HasSubstr("none.jsonl' is not there yet")));
  EXPECT_THAT(document.notices, Contains(HasSubstr("half.jsonl' has no line of metrics yet")));
  EXPECT_FALSE(document.is_finished);
  EXPECT_TRUE(collect({folder / "nothing"}, options).is_empty());
}

TEST(Snapshot, ChangesWithItsInputs) {
  const Folder folder;
  const std::string out = folder / "report.html";
  std::uint64_t last = 0;
  const auto has_changed = [&] {
    const std::uint64_t before = std::exchange(last, snapshot({folder / "."}, out));
    return before != last;
  };
  has_changed();
  fs::create_directories(folder / "runs/.unfinished-a");
  for (const char* const name : {"m.jsonl", "runs/.unfinished-a/metrics.jsonl"}) {
    folder.write(name, "1");
    EXPECT_TRUE(has_changed()) << name;
    folder.write(name, "12");
    EXPECT_TRUE(has_changed()) << name;
    EXPECT_FALSE(has_changed());
  }
  folder.write("report.html", "x");
  folder.write(".sparsewire-1-0.tmp", "x");
  EXPECT_FALSE(has_changed()) << "not what it writes itself";
  fs::remove(folder / "m.jsonl");
  EXPECT_TRUE(has_changed());
  const std::vector<std::string> file = {folder / "x.jsonl"};
  const std::uint64_t none = snapshot(file, out);
  folder.write("x.jsonl", "");
  EXPECT_NE(snapshot(file, out), none);
}

}  // namespace
}  // namespace sparsewire::report::collect_test
