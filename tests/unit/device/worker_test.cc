// Workers whose gradients are on a device beside workers on the host: the same updates, weights and saved states.
#include "sparsewire/worker.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <vector>

#include "sparsewire/errors.h"
#include "sparsewire/support/half.h"
#include "transport/least.h"
#include "unit/device/arrays.h"

namespace sparsewire::device_worker_test {
namespace {

using device_test::Copy;
using device_test::kDevice;
using Numbers = std::vector<float>;

constexpr std::size_t kSize = 3'000;

Numbers gradient_of(int rank, std::uint64_t step) {
  std::mt19937_64 random(step * 10 + static_cast<std::uint64_t>(rank));
  std::normal_distribution<float> draw;
  Numbers all(kSize);
  for (float& one : all) one = draw(random);
  return all;
}

// What a training of some steps leaves: the weights, dense updates in each format, and the saved state of a rank.
struct Result {
  std::vector<std::uint16_t> weights;  // bf16
  std::vector<std::vector<std::byte>> updates;
  std::vector<std::byte> state;
  double xi = 0;
};

std::size_t bytes_of(NumberType type) { return type == NumberType::f32 ? 4 : 2; }

Gradient there(const Copy& copy) {
  Gradient gradient(copy.data(), NumberType::f32, kSize);
  gradient.device = kDevice;
  gradient.stream = device_test::stream();
  return gradient;
}

Result train(Transport& transport, const WorkerConfig& config, bool on_device, bool stays = false) {
  Worker worker(config, Layout(kSize), transport);
  Result result;
  result.weights.assign(kSize, to_bf16(0.5F));
  const Copy weights(result.weights.data(), kSize * 2);
  for (std::uint64_t t = 0; t < 8; ++t) {
    const Numbers numbers = gradient_of(transport.rank(), t);
    const Copy copy(numbers.data(), kSize * sizeof(float));
    worker.step(on_device ? there(copy) : Gradient(numbers), {.lr = 0.1F, .update_on_device = stays});
    if (t == 5) {
      worker.take_back_step();
      continue;
    }
    if (t == 6 && config.feedback == "ef") result.xi = worker.measure_compression().xi;
    const auto place = [&](WritableNumbers array, const Copy& there) {
      if (!on_device) return array;
      array.data = there.data();
      array.device = kDevice;
      array.stream = device_test::stream();
      return array;
    };
    worker.apply_update(place({result.weights.data(), NumberType::bf16, kSize}, weights), 0.1F);
    for (const NumberType type : {NumberType::f32, NumberType::bf16, NumberType::f16}) {
      std::vector<std::byte> update(kSize * bytes_of(type), std::byte{0x55});
      const Copy there(update.data(), update.size());
      worker.write_update(place({update.data(), type, kSize}, there), 3.0F);
      if (on_device) there.read(update.data());
      result.updates.push_back(update);
    }
  }
  if (on_device) weights.read(result.weights.data());
  result.state = worker.save();
  return result;
}

TEST(WorkerOnADevice, TrainsWithTheBitsOfTheHost) {
  if (const std::string why = device_test::why_none(); !why.empty()) GTEST_SKIP() << why;
  const WorkerConfig kConfigs[] = {
      {.sparsifier = "topk:ratio=0.01",
       .exchange = "sharded",
       .codec = "golomb:values=bf16",
       .downlink = "topk:ratio=0.01"},
      {.sparsifier = "regtopk:ratio=0.02", .exchange = "server", .downlink = "threshold:lambda=0.5"},
      {.sparsifier = "threshold:ratio=0.05,calibrate=3", .feedback = "momentum:m=0.9,clip=1", .exchange = "allgather"},
      {.sparsifier = "randomk:ratio=0.02", .feedback = "ef:decay=0.9,scale=lr", .exchange = "allgather"},
      {.sparsifier = "topk:k=40,chunk=100",
       .feedback = "ef:decay=0.95",
       .exchange = "allgather",
       .codec = "adaptive:values=int2"},
      {.sparsifier = "dense", .exchange = "dense"},
      {.sparsifier = "topk:ratio=0.6", .exchange = "auto"}};
  for (const WorkerConfig& config : kConfigs) {
    SCOPED_TRACE(config.sparsifier + ", " + config.exchange);
    run_on_threads(2, [&](Transport& transport) {
      const Result here = train(transport, config, false);
      for (const bool stays : {false, true}) {
        const Result there = train(transport, config, true, stays);
        EXPECT_EQ(here.weights, there.weights);
        EXPECT_TRUE(here.updates == there.updates);
        EXPECT_TRUE(here.state == there.state);
        EXPECT_EQ(here.xi, there.xi);
      }
    });
  }
}

const WorkerConfig kDense{.sparsifier = "dense", .exchange = "dense"};

// What some steps end with, on rank 0. Step 1 fails: a gradient is bad, or the sum is too large, as rounding makes it
// for ten ranks.
struct Dense {
  Numbers update;
  std::vector<std::byte> state;
  StepStats stats;
};
Dense train_dense(const std::vector<bool>& on_device, std::size_t size = kSize) {
  const bool too_large = on_device.size() == 10;
  Dense result;
  run_on_threads(static_cast<int>(on_device.size()), [&](Transport& transport) {
    const auto rank = static_cast<std::size_t>(transport.rank());
    Worker worker(kDense, Layout(size), transport);
    for (std::uint64_t t = 0; t < 4; ++t) {
      Numbers numbers = gradient_of(transport.rank(), t);
      numbers.resize(size);
      if (t == 1 && too_large) numbers[17] = numbers[20] = std::numeric_limits<float>::max();
      if (t == 1 && !too_large && rank == 1) numbers[17] = 1.0F / 0.0F;
      const Copy copy(numbers.data(), size * sizeof(float));
      Gradient gradient = there(copy);
      gradient.size = size;
      const auto step = [&] {
        worker.step(on_device.at(rank) ? gradient : Gradient(numbers), {.update_on_device = true});
      };
      if (t != 1) {
        step();
        continue;
      }
      try {
        step();
        ADD_FAILURE() << "no error";
      } catch (const BadGradient& error) {
        EXPECT_EQ(error.index(), 17U);
      }
    }
    if (rank != 0) return;
    result.update.resize(size);
    worker.write_update(result.update);
    result.state = worker.save();
    result.stats = worker.stats();
  });
  return result;
}

TEST(DenseOnADevice, TakesBackAStepWhoseSumIsNotFinite) {
  if (const std::string why = device_test::why_none(); !why.empty()) GTEST_SKIP() << why;
  for (const std::size_t ranks : {3U, 10U}) {
    SCOPED_TRACE(ranks);
    const Dense expected = train_dense(std::vector<bool>(ranks, false));
    const Dense found = train_dense(std::vector<bool>(ranks, true));
    EXPECT_EQ(found.update, expected.update);
    EXPECT_TRUE(found.state == expected.state);
    EXPECT_EQ(found.stats.entries_total, kSize);
    EXPECT_EQ(found.stats.bytes_up, expected.stats.bytes_up);
    EXPECT_EQ(found.stats.sent_norm2, expected.stats.sent_norm2);
    EXPECT_TRUE(found.stats.went_dense);
  }
}

TEST(DenseOnADevice, WorksWithWorkersOnTheHost) {
  if (const std::string why = device_test::why_none(); !why.empty()) GTEST_SKIP() << why;
  const Dense expected = train_dense({false, false, false});
  for (const std::vector<bool>& on_device : {std::vector{true, false, true}, std::vector{false, true, true}}) {
    const Dense found = train_dense(on_device);
    EXPECT_EQ(found.update, expected.update);
    EXPECT_TRUE(found.state == expected.state);
  }
}

// The checksum, which is saved, goes over pieces and blocks of them.
TEST(DenseOnADevice, HasTheChecksumOfTheHost) {
  if (const std::string why = device_test::why_none(); !why.empty()) GTEST_SKIP() << why;
  for (const std::size_t size : {21U, 63U, 64U, 65U, 16'383U, 16'384U, 16'385U, 200'001U}) {
    SCOPED_TRACE(size);
    EXPECT_TRUE(train_dense({true, true}, size).state == train_dense({false, false}, size).state);
  }
}

TEST(DenseOnADevice, GoesThroughTheHostWithATransportBetweenProcesses) {
  if (const std::string why = device_test::why_none(); !why.empty()) GTEST_SKIP() << why;
  run_on_threads(2, [&](Transport& transport) {
    LeastTransport other(transport);
    const Numbers numbers = gradient_of(transport.rank(), 0);
    const Copy copy(numbers.data(), kSize * sizeof(float));
    Worker here(kDense, Layout(kSize), other);
    Worker on_device(kDense, Layout(kSize), other);
    const SparseVector expected = here.step(numbers);
    EXPECT_EQ(on_device.step(there(copy), {.update_on_device = true}), expected);
  });
}

TEST(DenseOnADevice, LeavesTheUpdateThereIfAskedTo) {
  if (const std::string why = device_test::why_none(); !why.empty()) GTEST_SKIP() << why;
  run_on_threads(2, [&](Transport& transport) {
    Worker worker(kDense, Layout(kSize), transport);
    const Numbers numbers = gradient_of(transport.rank(), 0);
    const Copy copy(numbers.data(), kSize * sizeof(float));
    EXPECT_TRUE(worker.step(there(copy)).is_full());
    const SparseVector update = worker.update();
    EXPECT_EQ(worker.step(there(copy), {.update_on_device = true}).size(), 0U);
    Numbers written(kSize);
    worker.write_update(written);  // on the host: it is brought there
    EXPECT_EQ(written, update.values);
    worker.step(there(copy), {.update_on_device = true});
    worker.take_back_step();
    EXPECT_EQ(worker.update().size(), 0U);
    EXPECT_EQ(worker.memory(), Numbers(kSize));
  });
}

TEST(WorkerOnADevice, TakesABadGradientBackOnAllRanks) {
  if (const std::string why = device_test::why_none(); !why.empty()) GTEST_SKIP() << why;
  run_on_threads(2, [&](Transport& transport) {
    Worker worker({.sparsifier = "topk:ratio=0.01", .exchange = "sharded", .downlink = "topk:ratio=0.01"},
                  Layout(kSize), transport);
    for (std::uint64_t t = 0; t < 3; ++t) {
      Numbers numbers = gradient_of(transport.rank(), t);
      if (t == 1 && transport.rank() == 1) numbers[77] = 1.0F / 0.0F;
      const Copy copy(numbers.data(), kSize * sizeof(float));
      if (t == 1) {
        EXPECT_THROW(worker.step(there(copy)), BadGradient);
      } else {
        worker.step(there(copy));
      }
    }
    EXPECT_EQ(worker.stats().step, 2U);
  });
}

}  // namespace
}  // namespace sparsewire::device_worker_test
