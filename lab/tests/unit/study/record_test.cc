// A record is the same after it was written and read; damaged ones are refused.
#include "study/record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "sparsewire/errors.h"
#include "unit/folder.h"

namespace sparsewire::study::record_test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr const char* kLines =
    "{\"step\":5,\"loss\":1.5,\"test_loss\":0.75,\"validation_loss\":0.5,\"test_accuracy\":0.25,"
    "\"total_bytes_up\":100,\"total_bytes_down\":50,\"paper_bits_up\":64,\"paper_bits_down\":32}\n"
    "{\"step\":7,\"loss\":1.5,\"xi\":0.5}\n"
    "{\"step\":10,\"loss\":1.5,\"test_loss\":null,\"validation_loss\":0.1,\"test_accuracy\":0.5,"
    "\"total_bytes_up\":200,\"total_bytes_down\":100,\"paper_bits_up\":128,\"paper_bits_down\":64}\n";

void write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

Record example() {
  Record record;
  record.id = "0123456789abcdef";
  record.phase = kTune;
  record.cell = {.method = "regtopk:mu=1/4", .ratio = "0.1", .lr = 0.1, .own = {{"mu", "4"}}, .k = 3, .grown = 1};
  record.seed = 1001;
  record.config.seed = 1001;
  record.config.workers = 2;
  record.config.lr = 0.1;
  record.status = kFinished;
  record.steps = 10;
  record.initial_train_loss = 0.7;
  record.final_train_loss = 1.0 / 3;
  record.val_loss = 0.1;
  record.test_loss = 0.2;
  record.metric = 0.5;
  record.val_metric = 0.625;
  record.totals.bytes_up = 200;
  record.totals.bytes_down = 100;
  record.totals.entries_up = 90;
  record.totals.entries_down = 50;
  record.totals.total_error = 0.1 + 0.2;
  record.totals.peak_memory_norm2 = 5;
  record.weights_crc32c = 0x00BADCAF;
  record.seconds = 1.25;
  record.curve = {{.step = 0, .train_loss = 0.7, .val_loss = 0.6, .test_loss = 0.9, .metric = 0.125}};
  return record;
}

TEST(Record, IsTheSameWhenReadAgain) {
  const Folder folder;
  const std::string path = folder / "run";
  std::filesystem::create_directory(path);
  write(path + "/metrics.jsonl", kLines);
  write_record(path, example(), "test_accuracy");
  const Record read = read_record(path);
  EXPECT_EQ(read.id, "0123456789abcdef");
  EXPECT_EQ(read.phase, kTune);
  EXPECT_EQ(read.cell, example().cell);
  EXPECT_EQ(train::to_json(read.config), train::to_json(example().config));
  EXPECT_EQ(read.status, kFinished);
  EXPECT_EQ(read.diverged_at, std::nullopt);
  EXPECT_EQ(read.final_train_loss, 1.0 / 3);
  EXPECT_EQ(read.totals.total_error, 0.1 + 0.2);
  EXPECT_EQ(read.peak_memory_norm2, 5);
  EXPECT_EQ(read.weights_crc32c, 0x00BADCAFU);
  EXPECT_EQ(read.bytes(), 300U);
  EXPECT_EQ(read.sent_of_asked(), 1.5);  // 10 steps of 2 workers, with 3 entries asked for
  EXPECT_EQ(read.totals.entries_down, 50U);
  EXPECT_EQ(read.measure(kTestLoss), 0.2);
  EXPECT_EQ(read.measure(kMetric), 0.5);
  EXPECT_EQ(read.measure(kValMetric), 0.625);
  ASSERT_EQ(read.curve.size(), 3U);
  EXPECT_EQ(read.curve[0].val_loss, 0.6);
  EXPECT_EQ(read.curve[0].metric, 0.125);
  EXPECT_EQ(read.curve[1].step, 5U);
  EXPECT_EQ(read.curve[1].bytes, 150U);
  EXPECT_EQ(read.curve[1].paper_bits, 96U);
  EXPECT_EQ(read.curve[1].metric, 0.25);
  EXPECT_TRUE(std::isnan(read.curve[1].train_loss));
  EXPECT_TRUE(std::isnan(read.curve[2].test_loss));
  EXPECT_EQ(measure(read.curve[2], kValLoss), 0.1);
}

TEST(Record, KeepsThatItDivergedAndWhatAPilotMeasured) {
  const Folder folder;
  const std::string path = folder / "run";
  std::filesystem::create_directory(path);
  write(path + "/metrics.jsonl", "");
  Record record = example();
  record.phase = kPilot;
  record.status = kDiverged;
  record.diverged_at = 3;
  record.lambda = 0.1F;
  record.val_loss = kNotMeasured;
  write_record(path, record, "");
  const Record read = read_record(path);
  EXPECT_TRUE(read.has_diverged());
  EXPECT_EQ(read.diverged_at, 3);
  EXPECT_EQ(read.lambda, static_cast<double>(0.1F));
  EXPECT_EQ(read.downlink_lambda, std::nullopt);
  EXPECT_TRUE(std::isnan(read.val_loss));
}

TEST(Record, IsRefusedIfItsFilesAreDamaged) {
  const Folder folder;
  const std::string path = folder / "run";
  std::filesystem::create_directory(path);
  const auto refused = [&](const char* why) {
    EXPECT_THAT([&] { read_record(path); }, ThrowsMessage<UsageError>(HasSubstr(why)));
    EXPECT_THAT([&] { read_record(path); }, ThrowsMessage<UsageError>(HasSubstr("remove it to run it again")));
  };
  write(path + "/metrics.jsonl", kLines);
  write_record(path, example(), "test_accuracy");
  write(path + "/metrics.jsonl", std::string(kLines).substr(0, 250));
  refused("ends in mid-line");
  write(path + "/metrics.jsonl", std::string(kLines).substr(0, std::string(kLines).find('\n') + 1));
  refused("ends too early");
  write(path + "/metrics.jsonl", kLines);
  write(path + "/result.json", "{\"id\": 3}");
  refused("is damaged");
  write(path + "/result.json", "");
  refused("is damaged");
}

TEST(RunId, DependsOnTheConfigurationAndTheContentsOfTheData) {
  train::TrainConfig config;
  Plan plan;
  const std::string id = run_id(config, "training", plan);
  EXPECT_EQ(id.size(), 16U);
  train::TrainConfig other = config;
  other.seed = 1;
  EXPECT_NE(run_id(other, "training", plan), id);
  EXPECT_NE(run_id(config, "pilot", plan), id);
  other = config;
  other.data = "elsewhere/a9a";
  other.metrics = "m.jsonl";
  other.quiet = true;
  EXPECT_EQ(run_id(other, "training", plan), id);
  plan.data = "1 byte";
  EXPECT_NE(run_id(config, "training", plan), id);
}

}  // namespace
}  // namespace sparsewire::study::record_test
