// What is taken out of the units of a model is kept from step to step on a device. Whatever can change it is noticed
// there: beside a Sifter on the host, where nothing is kept, entries, memories and states are the same.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "sparsewire/errors.h"
#include "sparsewire/sifter.h"
#include "sparsewire/support/half.h"
#include "sparsewire/worker.h"
#include "unit/device/arrays.h"

namespace sparsewire::device_change_test {
namespace {

using device_test::Copy;
using device_test::kDevice;
using Numbers = std::vector<float>;

constexpr std::size_t kSize = 20'003;
constexpr std::uint64_t kWarmUp = 6;

// Of all of them the entries per unit change in each of the first six steps.
const std::vector<std::string> kSparsifiers = {
    "topk:ratio=0.05,chunk=64,warmup_from=0.5,warmup_steps=6",
    "topk:ratio=0.05,warmup_from=0.5,warmup_steps=6,dense_below=100", "rtopk:ratio=0.05,warmup_from=0.4,warmup_steps=6",
    "regtopk:ratio=0.05,warmup_from=0.4,warmup_steps=6", "randomk:ratio=0.05,warmup_from=0.4,warmup_steps=6"};

Layout tensors() { return Layout({{"a", 9'001}, {"b", 17}, {"c", 4'096}, {"d", kSize - 9'001 - 17 - 4'096}}); }

class Pair {
 public:
  explicit Pair(const std::string& sparsifier, const std::string& feedback = "ef")
      : feedback_(feedback), here_(make(sparsifier)), there_(make(sparsifier)) {}

  void step(std::uint64_t seed, NumberType type = NumberType::f32, float lr = 1, float unscale = 1, float size = 1,
            bool undo = false) {
    Numbers numbers(kSize);
    std::mt19937_64 random(seed);
    std::normal_distribution<float> draw;
    for (float& one : numbers) one = size * draw(random);
    if (std::isnan(size)) numbers[kSize / 2] = size;
    std::vector<std::uint16_t> halves(type == NumberType::f32 ? 0 : kSize);
    for (std::size_t i = 0; i < halves.size(); ++i) {
      halves[i] = type == NumberType::bf16 ? to_bf16(numbers[i]) : to_f16(numbers[i]);
    }
    const void* const data = halves.empty() ? static_cast<const void*>(numbers.data()) : halves.data();
    const Copy copy(data, kSize * (halves.empty() ? 4 : 2));
    const Gradient here(data, type, kSize);
    Gradient there(copy.data(), type, kSize);
    there.device = kDevice;
    there.stream = device_test::stream();
    if (std::isnan(size)) {
      EXPECT_THROW(here_.sift(here, sent_here_, lr, unscale), BadGradient);
      EXPECT_THROW(there_.sift(there, sent_there_, lr, unscale), BadGradient);
      return compare();
    }
    here_.sift(here, sent_here_, lr, unscale);
    if (on_host_) {
      there_.sift(here, sent_there_, lr, unscale);
    } else {
      there_.sift(there, sent_there_, lr, unscale);
      EXPECT_EQ(there_.device(), kDevice);
    }
    compare();
    if (undo) {
      here_.undo(here, sent_here_, lr, unscale);
      there_.undo(on_host_ ? here : there, sent_there_, lr, unscale);
      compare();
    }
  }

  void for_both(const std::function<void(Sifter&)>& change) {
    change(here_);
    change(there_);
  }
  void continue_as(const std::string& sparsifier) {
    for (Sifter* const one : {&here_, &there_}) {
      Sifter next = make(sparsifier);
      next.continue_from(*one);
      *one = std::move(next);
    }
  }
  // Where the second one is from now on.
  void move(bool to_host) { on_host_ = to_host; }

  std::vector<std::byte> save() const { return there_.save(); }
  std::size_t sent() const { return sent_there_.size(); }

 private:
  Sifter make(const std::string& sparsifier) const {
    return {sparsifier, feedback_, {.layout = tensors(), .scope = Scope::layer}};
  }
  void compare() const {
    EXPECT_TRUE(sent_here_.indices == sent_there_.indices);
    EXPECT_TRUE(sent_here_.values == sent_there_.values);
    EXPECT_EQ(here_.stats().sent_norm2, there_.stats().sent_norm2);
    EXPECT_EQ(here_.stats().total_error, there_.stats().total_error);
    EXPECT_TRUE(here_.save() == there_.save());
  }

  std::string feedback_;
  bool on_host_ = false;
  Sifter here_;
  Sifter there_;
  SparseVector sent_here_;
  SparseVector sent_there_;
};

class ChangeOnADevice : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (const std::string why = device_test::why_none(); !why.empty()) GTEST_SKIP() << why;
  }
};
std::string name_of(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& one : name) one = std::isalnum(static_cast<unsigned char>(one)) != 0 ? one : '_';
  return name;
}
INSTANTIATE_TEST_SUITE_P(Device, ChangeOnADevice, testing::ValuesIn(kSparsifiers), name_of);

TEST_P(ChangeOnADevice, OfTheRatioIsNoticed) {
  Pair pair(GetParam());
  std::size_t before = kSize;
  for (std::uint64_t t = 0; t < kWarmUp + 3 && !HasFailure(); ++t) {
    pair.step(t);
    EXPECT_TRUE(t > kWarmUp || pair.sent() < before);  // else this test shows nothing
    before = pair.sent();
  }
}

TEST_P(ChangeOnADevice, OfTheStepIsNoticed) {
  Pair pair(GetParam());
  for (std::uint64_t t = 0; t < 8 && !HasFailure(); ++t) {
    pair.step(t);
    if (t == 2 || t == 5) pair.for_both([](Sifter& one) { one.set_step(1); });
    if (t == 3) pair.for_both([](Sifter& one) { one.set_step(kWarmUp); });
  }
}

TEST_P(ChangeOnADevice, ByUndoIsNoticed) {
  Pair pair(GetParam());
  for (std::uint64_t t = 0; t < kWarmUp + 2 && !HasFailure(); ++t) {
    pair.step(t, NumberType::f32, 1, 1, 1, /*undo=*/true);
    pair.step(t + 100);
  }
}

TEST_P(ChangeOnADevice, ByABadGradientIsNoticed) {
  Pair pair(GetParam());
  for (std::uint64_t t = 0; t < kWarmUp + 2 && !HasFailure(); ++t) {
    pair.step(t, NumberType::f32, 1, 1, std::numeric_limits<float>::quiet_NaN());
    pair.step(t + 100);
  }
}

TEST_P(ChangeOnADevice, ByALoadedStateIsNoticed) {
  Pair pair(GetParam());
  std::vector<std::byte> early;
  std::vector<std::byte> late;
  for (std::uint64_t t = 0; t < kWarmUp + 2 && !HasFailure(); ++t) {
    pair.step(t);
    if (t == 1) early = pair.save();
    if (t == kWarmUp + 1) late = pair.save();
  }
  for (const auto& state : {early, late, early}) {
    pair.for_both([&](Sifter& one) { one.load(state); });
    pair.step(50);
    pair.step(51);
    if (HasFailure()) return;
  }
}

TEST_P(ChangeOnADevice, OfTheTypeAndTheScaleIsNoticed) {
  Pair pair(GetParam(), "ef:decay=0.9,scale=lr");
  const NumberType types[] = {NumberType::f32, NumberType::bf16, NumberType::f16};
  for (std::uint64_t t = 0; t < kWarmUp + 4 && !HasFailure(); ++t) {
    pair.step(t, types[t % 3], t % 4 == 1 ? 0.01F : 1.0F, t % 2 == 0 ? 0.5F : 1.0F);
  }
}

TEST_P(ChangeOnADevice, OfTheClippingIsNoticed) {
  Pair pair(GetParam(), "momentum:m=0.9,clip=2");
  for (std::uint64_t t = 0; t < kWarmUp + 4 && !HasFailure(); ++t) {
    pair.step(t, NumberType::f32, 1, 1, t % 2 == 0 ? 1.0F : 0.001F, /*undo=*/t % 5 == 3);
  }
}

TEST_P(ChangeOnADevice, OfThePlaceIsNoticed) {
  Pair pair(GetParam());
  for (std::uint64_t t = 0; t < kWarmUp + 4 && !HasFailure(); ++t) {
    pair.move(/*to_host=*/t % 3 == 1);
    pair.step(t);
  }
}

TEST_P(ChangeOnADevice, OfTheOptionsIsNoticed) {
  Pair pair(GetParam());
  const std::string name = GetParam().substr(0, GetParam().find(':'));
  for (std::uint64_t t = 0; t < 9 && !HasFailure(); ++t) {
    pair.step(t);
    if (t == 3) pair.continue_as(name + ":ratio=0.2");
    if (t == 6) pair.continue_as(GetParam());
  }
}

// A threshold in units of the memory follows the learning rate; that of a calibration comes after some steps of Top-k.
TEST(ChangeOfAThresholdOnADevice, IsNoticed) {
  if (const std::string why = device_test::why_none(); !why.empty()) GTEST_SKIP() << why;
  for (const char* sparsifier : {"threshold:lambda=1.5,dense_below=100", "threshold:ratio=0.05,calibrate=3",
                                 "threshold:ratio=0.05,calibrate=3,dense_below=100"}) {
    Pair pair(sparsifier, "ef:scale=lr");
    for (std::uint64_t t = 0; t < 9 && !testing::Test::HasFailure(); ++t) {
      SCOPED_TRACE(sparsifier);
      pair.step(t, NumberType::f32, t < 5 ? 1.0F : 0.1F, 1, 1, /*undo=*/t % 3 == 2);
    }
  }
}

// Worker::retune() has another Sifter afterwards, on the device as before.
TEST(ChangeOfAWorkerOnADevice, IsNoticed) {
  if (const std::string why = device_test::why_none(); !why.empty()) GTEST_SKIP() << why;
  const auto train = [](Transport& transport, bool on_device) {
    WorkerConfig config{.sparsifier = "topk:k=8,chunk=100", .exchange = "allgather"};
    Worker worker(config, Layout(kSize), transport);
    for (std::uint64_t t = 0; t < 8; ++t) {
      Numbers numbers(kSize);
      std::mt19937_64 random(t * 10 + static_cast<std::uint64_t>(transport.rank()));
      std::normal_distribution<float> draw;
      for (float& one : numbers) one = draw(random);
      const Copy copy(numbers.data(), kSize * sizeof(float));
      Gradient gradient(numbers);
      if (on_device) {
        gradient.data = copy.data();
        gradient.device = kDevice;
        gradient.stream = device_test::stream();
      }
      worker.step(gradient);
      if (t == 2) config.sparsifier = "topk:k=3,chunk=100";
      if (t == 5) config.sparsifier = "topk:k=8,chunk=50";
      if (t == 2 || t == 5) worker.retune(config);
    }
    return worker.save();
  };
  run_on_threads(2, [&](Transport& transport) { EXPECT_TRUE(train(transport, false) == train(transport, true)); });
}

}  // namespace
}  // namespace sparsewire::device_change_test
