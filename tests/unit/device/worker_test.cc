// Workers whose gradients are on a device beside workers on the host: the same updates, weights and saved states.
#include "sparsewire/worker.h"

#include <gtest/gtest.h>

#include <random>

#include "core/half.h"
#include "sparsewire/errors.h"
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

Result train(Transport& transport, const WorkerConfig& config, bool on_device) {
  Worker worker(config, Layout(kSize), transport);
  Result result;
  result.weights.assign(kSize, to_bf16(0.5F));
  const Copy weights(result.weights.data(), kSize * 2);
  for (std::uint64_t t = 0; t < 8; ++t) {
    const Numbers numbers = gradient_of(transport.rank(), t);
    const Copy copy(numbers.data(), kSize * sizeof(float));
    Gradient gradient(numbers);
    if (on_device) {
      gradient.data = copy.data();
      gradient.device = kDevice;
      gradient.stream = device_test::stream();
    }
    worker.step(gradient, {.lr = 0.1F});
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
      const Result there = train(transport, config, true);
      EXPECT_EQ(here.weights, there.weights);
      EXPECT_TRUE(here.updates == there.updates);
      EXPECT_TRUE(here.state == there.state);
      EXPECT_EQ(here.xi, there.xi);
    });
  }
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
      Gradient gradient(copy.data(), NumberType::f32, kSize);
      gradient.device = kDevice;
      gradient.stream = device_test::stream();
      if (t == 1) {
        EXPECT_THROW(worker.step(gradient), BadGradient);
      } else {
        worker.step(gradient);
      }
    }
    EXPECT_EQ(worker.stats().step, 2U);
  });
}

}  // namespace
}  // namespace sparsewire::device_worker_test
