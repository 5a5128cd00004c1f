// Weights to and from .npy files.
#include "loop/weights_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "files/npy.h"
#include "loop/loop.h"
#include "sparsewire/errors.h"
#include "sparsewire/support/crc32c.h"
#include "unit/folder.h"
#include "unit/shared_error.h"
#include "unit/trained.h"

namespace sparsewire::train::weights_file_test {
namespace {

using ::testing::HasSubstr;
using Numbers = std::vector<float>;

std::string complaint(const std::string& path, std::size_t size) {
  try {
    read_weights(path, size);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(WeightsFile, KeepsEveryBit) {
  const Folder folder;
  const Numbers weights{1, -0.0F, 1e-40F, 3.4e38F, 0.1F};
  write_weights(folder / "w.npy", weights);
  const Numbers back = read_weights(folder / "w.npy", 5);
  EXPECT_EQ(crc32c(std::as_bytes(std::span(back))), crc32c(std::as_bytes(std::span(weights))));
  EXPECT_EQ(folder.names(), std::vector<std::string>{"w.npy"});
}

TEST(WeightsFile, IsRefusedWhereItDoesNotFit) {
  const Folder folder;
  write_weights(folder / "w.npy", Numbers(6, 1));
  EXPECT_THAT(complaint(folder / "w.npy", 5),
              HasSubstr("w.npy' has the shape (6,), but the model has 5 weights: the shape must be (5,)"));
  {
    files::Replacement file(folder / "table.npy");
    files::write_npy(file, Numbers(6, 1), files::Shape{2, 3});
    file.commit();
  }
  EXPECT_THAT(complaint(folder / "table.npy", 6), HasSubstr("has the shape (2, 3)"));
  write_weights(folder / "nan.npy", Numbers{1, std::numeric_limits<float>::quiet_NaN()});
  EXPECT_THAT(complaint(folder / "nan.npy", 2), HasSubstr("nan.npy': weight 1 is nan"));
  folder.write("x.npy", "not weights");
  EXPECT_THAT(complaint(folder / "x.npy", 2), HasSubstr("x.npy'"));
  EXPECT_THAT(complaint(folder / "none.npy", 2), HasSubstr("No such file"));
  EXPECT_THROW(write_weights(folder / "none/w.npy", Numbers(2)), std::runtime_error);
}

// Dense steps of plain sgd have no state but the weights.
TEST(WeightsFile, ContinuesATraining) {
  const Folder folder;
  TrainConfig config;
  config.problem = "linreg:dim=10,samples=20";
  config.workers = 3;
  config.sparsifier = "dense";
  config.exchange = "dense";
  config.lr = 0.05;
  config.steps = 20;
  const Result whole = trained(config);
  config.steps = 8;
  config.save_weights = folder / "w.npy";
  const Result first = trained(config);
  const Numbers saved = read_weights(folder / "w.npy", 10);
  EXPECT_EQ(crc32c(std::as_bytes(std::span(saved))), first.weights_crc32c);
  config.steps = 12;
  config.init_weights = folder / "w.npy";
  config.save_weights = "";
  EXPECT_EQ(trained(config).weights_crc32c, whole.weights_crc32c);
  config.problem = "linreg:dim=11,samples=20";
  EXPECT_THAT(error_of([&] { trained(config); }), HasSubstr("usage: '"));
  EXPECT_THAT(error_of([&] { trained(config); }), HasSubstr("has the shape (10,), but the model has 11 weights"));
}

// Only rank 0 reads it, so the others need neither the file nor the option; what they were given does not matter.
TEST(WeightsFile, IsThatOfRank0) {
  const Folder folder;
  write_weights(folder / "w.npy", Numbers(10, 0.5F));
  TrainConfig config;
  config.problem = "linreg:dim=10,samples=20";
  config.workers = 3;
  config.steps = 3;
  config.sparsifier = "topk:k=3";
  const std::uint32_t without = trained(config).weights_crc32c;
  config.init_weights = folder / "w.npy";
  const std::uint32_t with = trained(config).weights_crc32c;
  ASSERT_NE(with, without);
  const auto problem = make_problem(config.problem, problem_place(config));
  for (const int odd : {0, 1}) {  // the rank that has the option
    run_on_threads(3, [&](Transport& transport) {
      TrainConfig mine = config;
      if (transport.rank() != odd) mine.init_weights.clear();
      const Result result = train(train::Run{.config = mine, .problem = *problem, .transport = transport});
      EXPECT_EQ(result.weights_crc32c, odd == 0 ? with : without);
    });
  }
}

// A checkpoint counts more: the same command can be given again.
TEST(WeightsFile, IsNotReadWhereATrainingIsResumed) {
  const Folder folder;
  write_weights(folder / "w.npy", Numbers(10, 0.5F));
  TrainConfig config;
  config.problem = "linreg:dim=10,samples=20";
  config.workers = 2;
  config.steps = 20;
  config.sparsifier = "topk:k=3";
  config.init_weights = folder / "w.npy";
  config.resume = true;
  config.checkpoint_dir = folder / "whole";
  const std::uint32_t whole = trained(config).weights_crc32c;
  config.checkpoint_dir = folder / "c";
  config.steps = 9;
  trained(config);
  config.steps = 20;
  std::filesystem::remove(folder / "w.npy");
  EXPECT_EQ(trained(config).weights_crc32c, whole);
}

}  // namespace
}  // namespace sparsewire::train::weights_file_test
