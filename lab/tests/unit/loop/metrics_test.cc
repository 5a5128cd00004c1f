// The metrics file: what a line holds, and how it is cut back.
#include "loop/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "sparsewire/errors.h"
#include "unit/folder.h"

namespace sparsewire::train::metrics_test {
namespace {

using ::testing::HasSubstr;

std::string lines(std::uint64_t from, std::uint64_t to) {
  std::string all;
  for (std::uint64_t step = from; step <= to; ++step) all += "{\"step\":" + std::to_string(step) + ",\"loss\":1.5}\n";
  return all;
}

TEST(Metrics, HaveEveryFieldOfAStep) {
  StepStats stats;
  stats.bytes_up = 7;
  stats.went_dense = true;
  StepReport report{.step = 3, .loss = 0.1, .lr = 0.5, .stats = stats};
  const Json plain = step_json(report);
  for (const char* key : {"step",          "seconds",    "loss",         "lr",          "entries_sent",
                          "entries_total", "density",    "dense_bytes",  "bytes_up",    "bytes_down",
                          "bytes_served",  "sent_norm2", "memory_norm2", "total_error", "server_memory_norm2",
                          "server_error",  "flags",      "went_dense",   "ns_sift",     "ns_encode",
                          "ns_exchange",   "ns_decode",  "ns_merge",     "ns_apply",    "ns_gradient"}) {
    EXPECT_TRUE(plain.contains(key)) << key;
  }
  EXPECT_EQ(plain.size(), 25U);
  EXPECT_EQ(plain["bytes_up"], 7);
  EXPECT_EQ(plain["went_dense"], true);
  report.evaluation = Evaluation{{{"test_loss", 2}, {"test_accuracy", 0.75}}};
  report.totals = Totals{.bytes_up = 1, .bytes_down = 2, .bytes_served = 3, .paper_bits_up = 4, .paper_bits_down = 5};
  const Json evaluated = step_json(report);
  EXPECT_EQ(evaluated["test_loss"], 2.0);
  EXPECT_EQ(evaluated["test_accuracy"], 0.75);
  EXPECT_EQ(evaluated["total_bytes_up"], 1);
  EXPECT_EQ(evaluated["total_bytes_down"], 2);
  EXPECT_EQ(evaluated["total_bytes_served"], 3);
  EXPECT_EQ(evaluated["paper_bits_up"], 4);
  EXPECT_EQ(evaluated["paper_bits_down"], 5);
  EXPECT_EQ(evaluated.size(), 33U);
  report.loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(Json::parse(step_json(report).dump())["loss"], nullptr);  // JSON has no NaN
}

TEST(Metrics, AreCutBackToAStep) {
  const std::string all = lines(1, 12);
  EXPECT_EQ(bytes_until(all, 0), 0U);
  EXPECT_EQ(bytes_until(all, 5), lines(1, 5).size());
  EXPECT_EQ(bytes_until(all, 12), all.size());
  EXPECT_EQ(bytes_until(all, 99), all.size());
  EXPECT_EQ(bytes_until("", 5), 0U);
  for (std::size_t cut = 0; cut <= all.size(); ++cut) {  // a kill at any byte
    const std::size_t kept = bytes_until(std::string_view(all).substr(0, cut), 5);
    EXPECT_LE(kept, cut);
    EXPECT_TRUE(kept == 0 || all[kept - 1] == '\n');
    EXPECT_LE(kept, lines(1, 5).size());
    EXPECT_TRUE(cut < lines(1, 5).size() || kept == lines(1, 5).size());
  }
  EXPECT_EQ(bytes_until(lines(1, 2) + "nonsense\n" + lines(3, 4), 9), lines(1, 2).size());
  EXPECT_EQ(bytes_until(lines(1, 2) + "[3]\n{}\n", 9), lines(1, 2).size());
  const std::string nested = std::string(100'000, '[') + std::string(100'000, ']');
  EXPECT_EQ(bytes_until(lines(1, 2) + "{\"step\":3,\"x\":" + nested + "}\n", 9), lines(1, 2).size());
}

TEST(Metrics, ContinueAfterTheLinesThatAreKept) {
  const Folder folder;
  folder.write("m.jsonl", lines(1, 9) + "{\"step\":1");
  const StepStats stats;
  const auto write = [&](std::uint64_t keep, std::uint64_t step) {
    MetricsFile(folder / "m.jsonl", keep).write({.step = step, .loss = 0, .lr = 0, .stats = stats});
  };
  write(4, 5);
  const std::string kept = folder.read("m.jsonl");
  EXPECT_TRUE(kept.starts_with(lines(1, 4) + "{\"step\":5,\"loss\":0.0"));
  EXPECT_TRUE(kept.ends_with("}\n"));
  write(0, 1);
  EXPECT_TRUE(folder.read("m.jsonl").starts_with("{\"step\":1,\"loss\":0.0"));
  EXPECT_THROW(MetricsFile(folder / "none/m.jsonl", 0), std::runtime_error);
}

TEST(Metrics, KnowWhenTheLastLineThatIsKeptWasWritten) {
  const Folder folder;
  const std::string timed = "{\"step\":1,\"seconds\":0.5}\n{\"step\":2,\"seconds\":1.25}\n";
  folder.write("m.jsonl", timed + "{\"step\":2,\"changed\":{}}\n{\"step\":3,\"seconds\":9}\n");
  EXPECT_EQ(MetricsFile(folder / "m.jsonl", 2).seconds(), 1.25);
  EXPECT_EQ(folder.read("m.jsonl"), timed);
  EXPECT_EQ(MetricsFile(folder / "m.jsonl", 1).seconds(), 0.5);
  folder.write("m.jsonl", lines(1, 3));  // of a version that did not write it
  EXPECT_EQ(MetricsFile(folder / "m.jsonl", 3).seconds(), 0);
  EXPECT_EQ(MetricsFile(folder / "m.jsonl", 0).seconds(), 0);
}

// With lines at evaluations only, a checkpoint may be older than the first of them.
TEST(Metrics, BeginAnewWhereAllLinesAreOfLaterSteps) {
  const Folder folder;
  for (const std::string& content : {lines(100, 101), std::string("{\"step\":10"), std::string()}) {
    folder.write("m.jsonl", content);
    MetricsFile(folder / "m.jsonl", 50);
    EXPECT_EQ(folder.read("m.jsonl"), "") << content;
  }
  for (const std::string& content : {std::string("my notes\n"), std::string("{\"step"), "# x\n" + lines(1, 9)}) {
    folder.write("notes.txt", content);
    EXPECT_FALSE(is_metrics_file(folder / "notes.txt"));
    for (const std::uint64_t keep_until : {0U, 50U}) {
      EXPECT_THROW(MetricsFile(folder / "notes.txt", keep_until), UsageError) << content;
      EXPECT_EQ(folder.read("notes.txt"), content);
    }
  }
}

// A new training writes over the metrics of an older one.
TEST(Metrics, ReplaceOlderMetrics) {
  const Folder folder;
  for (const std::string& content : {lines(1, 2), std::string("{\"step\":10"), std::string()}) {
    folder.write("m.jsonl", content);
    EXPECT_TRUE(is_metrics_file(folder / "m.jsonl"));
    MetricsFile(folder / "m.jsonl", 0);
    EXPECT_EQ(folder.read("m.jsonl"), "") << content;
  }
  EXPECT_FALSE(is_metrics_file(folder / "none"));
  EXPECT_FALSE(is_metrics_file(folder / "."));
}

TEST(Metrics, AreWrittenByOneTrainingAtATime) {
  const Folder folder;
  folder.write("m.jsonl", lines(1, 9));
  {
    const MetricsFile first(folder / "m.jsonl", 5);
    for (const std::uint64_t keep_until : {0U, 3U}) {
      EXPECT_THROW(MetricsFile(folder / "m.jsonl", keep_until), UsageError);
      EXPECT_EQ(folder.read("m.jsonl"), lines(1, 5));
    }
  }
  MetricsFile(folder / "m.jsonl", 3);  // the first one has ended
  EXPECT_EQ(folder.read("m.jsonl"), lines(1, 3));
}

}  // namespace
}  // namespace sparsewire::train::metrics_test
