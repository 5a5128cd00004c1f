// Steps whose frames are written where the memory is, beside a sifter and a codec on the host: the same bytes, the same
// memories and statistics.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <stdexcept>

#include "kernels/frame_plan.h"
#include "sparsewire/codec.h"
#include "sparsewire/errors.h"
#include "sparsewire/sifter.h"
#include "sparsewire/support/half.h"
#include "unit/device/arrays.h"

namespace sparsewire::device_frame_test {
namespace {

using device_test::Copy;
using device_test::kDevice;
using Numbers = std::vector<float>;

struct Setting {
  std::size_t size;
  std::string sparsifier;
  std::string codec = "auto:values=int2";
  NumberType type = NumberType::f32;
  std::string kind = "normal";
};

Numbers make(const Setting& setting, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> draw;
  Numbers all(setting.size);
  const std::string& kind = setting.kind;
  for (std::size_t i = 0; i < all.size(); ++i) {
    float& one = all[i];
    one = draw(random);
    if (kind == "equal") one = i % 2 == 0 ? 0.25F : -0.25F;
    if (kind == "ties") one = std::round(2 * one);
    if (kind == "mostly_zero") one = i % 53 == seed % 53 || i % 4096 < 100 ? one : -0.0F;
    if (kind == "few") one = i % 4096 < 37 ? one : 0.0F;  // all are sent: what stays is what rounding took
    if (kind == "zero_chunks") one = i / 4096 % 3 == 0 ? 0.0F : one;
    if (kind == "tiny") one *= 1e-40F;
    if (kind == "huge") one *= 2e37F;
    if (kind == "jumps") one *= seed % 3 == 1 ? 100.0F : 1.0F;
    if (kind == "clustered") one *= i % 64 < 8 ? 50.0F : 1.0F;
    if (kind == "runs") one *= i % 64 < 2 ? 1000.0F : 1.0F;
  }
  return all;
}

class Pair {
 public:
  explicit Pair(const Setting& setting)
      : setting_(setting),
        here_(setting.sparsifier, "ef:decay=0.95", {.layout = Layout(setting.size)}),
        there_(setting.sparsifier, "ef:decay=0.95", {.layout = Layout(setting.size)}),
        codec_here_(setting.codec),
        codec_there_(setting.codec) {}

  // Returns whether the frame was written on the device.
  bool step(const Numbers& numbers, std::uint64_t t) {
    std::vector<std::uint16_t> halves(setting_.type == NumberType::f32 ? 0 : numbers.size());
    for (std::size_t i = 0; i < halves.size(); ++i) {
      halves[i] = setting_.type == NumberType::bf16 ? to_bf16(numbers[i]) : to_f16(numbers[i]);
    }
    const void* const data = halves.empty() ? static_cast<const void*>(numbers.data()) : halves.data();
    const Copy copy(data, numbers.size() * (halves.empty() ? 4 : 2));
    const Gradient here(data, setting_.type, numbers.size());
    Gradient there(copy.data(), setting_.type, numbers.size());
    there.device = kDevice;
    there.stream = device_test::stream();

    std::string error_here;
    std::string error_there;
    SparseVector sent_here;
    SparseVector sent_there;
    std::vector<std::byte> frame_here;
    std::vector<std::byte> frame_there;
    bool is_written = false;
    try {
      here_.sift(here, sent_here);
      encode(here_, codec_here_, sent_here, frame_here);
    } catch (const BadGradient& error) {
      error_here = error.what();
    }
    try {
      is_written = there_.sift_into(there, *codec_there_.planner(), frame_there, sent_there);
      if (!is_written) encode(there_, codec_there_, sent_there, frame_there);
    } catch (const BadGradient& error) {
      error_there = error.what();
    }
    EXPECT_EQ(error_here, error_there);
    EXPECT_TRUE(frame_here == frame_there) << first_difference(frame_here, frame_there);
    EXPECT_EQ(there_.device(), kDevice);
    compare();
    if (is_written) {
      EXPECT_EQ(sent_there.size(), 0U);
      SparseVector decoded;
      EXPECT_EQ(decode(frame_there, decoded), DecodeStatus::ok);
      EXPECT_EQ(decoded.indices, sent_here.indices);
    }
    if (t % 5 == 3 && error_here.empty()) {
      here_.undo(here, sent_here);
      there_.undo(there, sent_there);
      compare();
    }
    return is_written;
  }

 private:
  static void encode(Sifter& sifter, Codec& codec, const SparseVector& sent, std::vector<std::byte>& frame) {
    Numbers received;
    codec.encode(sent, frame, &received);
    sifter.keep_rounding_loss(sent, received);
  }

  static std::string first_difference(const std::vector<std::byte>& here, const std::vector<std::byte>& there) {
    const auto found = std::mismatch(here.begin(), here.end(), there.begin(), there.end());
    return "byte " + std::to_string(found.first - here.begin()) + " of " + std::to_string(here.size()) +
           " on the host and " + std::to_string(there.size()) + " on the device";
  }

  void compare() const {
    const Numbers here = here_.memory();
    const Numbers there = there_.memory();
    const auto same = [](float a, float b) {
      return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
    };
    const auto found = std::mismatch(here.begin(), here.end(), there.begin(), there.end(), same);
    if (found.first != here.end()) {
      ADD_FAILURE() << "the memory at " << found.first - here.begin() << " is " << *found.first << " on the host and "
                    << *found.second << " on the device";
    }
    EXPECT_EQ(here_.stats().entries, there_.stats().entries);
    EXPECT_EQ(here_.stats().sent_norm2, there_.stats().sent_norm2);
    EXPECT_EQ(here_.stats().memory_norm2, there_.stats().memory_norm2);
    EXPECT_EQ(here_.stats().total_error, there_.stats().total_error);
    EXPECT_TRUE(here_.save() == there_.save());
  }

  Setting setting_;
  Sifter here_;
  Sifter there_;
  Codec codec_here_;
  Codec codec_there_;
};

// How many frames of some steps were written on the device.
int run(const Setting& setting, std::uint64_t steps = 6) {
  SCOPED_TRACE(setting.sparsifier + ", " + setting.codec + ", " + std::to_string(setting.size) + " entries, type " +
               std::to_string(static_cast<int>(setting.type)) + ", " + setting.kind);
  Pair pair(setting);
  int written = 0;
  for (std::uint64_t t = 0; t < steps && !testing::Test::HasFailure(); ++t) {
    SCOPED_TRACE("step " + std::to_string(t));
    if (pair.step(make(setting, t), t)) ++written;
  }
  return written;
}

class FrameOnADevice : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = device_test::why_none(); !why.empty()) GTEST_SKIP() << why;
  }
};

constexpr const char* kSparseLoco = "topk:k=64,chunk=4096";
std::size_t a_size() { return device_test::is_fast() ? 1'000'003 : 131'077; }

TEST_F(FrameOnADevice, HasTheBytesOfTheHostForEveryInput) {
  for (const char* kind :
       {"normal", "equal", "ties", "mostly_zero", "zero_chunks", "tiny", "huge", "jumps", "clustered", "runs", "few"}) {
    for (const char* codec : {"auto:values=int2", "golomb:values=int2", "adaptive:values=int2"}) {
      const int written = run({.size = a_size(), .sparsifier = kSparseLoco, .codec = codec, .kind = kind});
      EXPECT_GE(written, std::string(kind) == "normal" ? 4 : 0) << codec;
      if (HasFailure()) return;
    }
  }
}

// So little that it can be run under a tool that looks at every access.
TEST_F(FrameOnADevice, HasTheBytesOfTheHostForShortModels) {
  for (const char* codec : {"auto:values=int2", "golomb:values=int2", "adaptive:values=int2"}) {
    EXPECT_GE(run({.size = 70'001, .sparsifier = kSparseLoco, .codec = codec}, 4), 3) << codec;
  }
}

TEST_F(FrameOnADevice, HasTheBytesOfTheHostForEveryType) {
  for (const NumberType type : {NumberType::bf16, NumberType::f16}) {
    EXPECT_GE(run({.size = a_size(), .sparsifier = kSparseLoco, .type = type}), 4);
  }
}

// Around the sizes of blocks of values, of numbers, of groups and of segments.
TEST_F(FrameOnADevice, HasTheBytesOfTheHostForEveryLength) {
  for (const std::size_t entries :
       std::initializer_list<std::size_t>{1023, 1024, 1025, 1055, 1056, 1151, 1152, 1153, 1279, 1280, 1281, 4095, 4096,
                                          4097, 8191, 8192, 8193, 12287, 12289}) {
    // All chunks but the last have one entry in 32.
    for (const char* codec : {"golomb:values=int2", "adaptive:values=int2"}) {
      run({.size = entries * 32, .sparsifier = "topk:k=1,chunk=32", .codec = codec}, 2);
    }
    if (HasFailure()) return;
  }
  for (const std::size_t size :
       std::initializer_list<std::size_t>{70'000, 70'001, 73'727, 73'728, 73'729, 77'823, 77'825}) {
    run({.size = size, .sparsifier = kSparseLoco});
    run({.size = size, .sparsifier = "topk:ratio=0.05,chunk=1000"});
    run({.size = size, .sparsifier = "topk:ratio=0.2,chunk=4096"});
    if (HasFailure()) return;
  }
}

TEST_F(FrameOnADevice, TakesABadGradientBack) {
  const Setting setting{.size = a_size(), .sparsifier = kSparseLoco};
  Pair pair(setting);
  for (std::uint64_t t = 0; t < 6 && !HasFailure(); ++t) {
    Numbers numbers = make(setting, t);
    if (t == 2 || t == 4) numbers[setting.size / 2] = std::numeric_limits<float>::quiet_NaN();
    if (t == 4) numbers[7] = -std::numeric_limits<float>::infinity();
    EXPECT_EQ(pair.step(numbers, 0) && (t == 2 || t == 4), false);
  }
}

class FailingPlanner final : public FramePlanner {
 public:
  std::optional<FramePlan> plan(const Support& /*support*/) override { throw std::runtime_error("no room"); }
};

// The entries are chosen, and neither in a frame nor on the host.
TEST_F(FrameOnADevice, PutsTheEntriesBackIfNoFrameIsPlanned) {
  const Setting setting{.size = a_size(), .sparsifier = kSparseLoco};
  const SifterContext context{.layout = Layout(setting.size)};
  Sifter here(setting.sparsifier, "ef", context);
  Sifter there(setting.sparsifier, "ef", context);
  FailingPlanner planner;
  std::vector<std::byte> frame;
  SparseVector sent;
  for (std::uint64_t t = 0; t < 3; ++t) {
    const Numbers numbers = make(setting, t);
    const Copy copy(numbers.data(), numbers.size() * sizeof(float));
    Gradient gradient(copy.data(), NumberType::f32, numbers.size());
    gradient.device = kDevice;
    gradient.stream = device_test::stream();
    here.sift(numbers, sent);
    here.undo(numbers, sent);
    EXPECT_THROW(there.sift_into(gradient, planner, frame, sent), std::runtime_error);
    EXPECT_EQ(sent.size(), 0U);
    EXPECT_TRUE(here.memory() == there.memory()) << "step " << t;
    here.sift(numbers, sent);
    const std::vector<std::uint32_t> indices = sent.indices;
    there.sift(gradient, sent);
    EXPECT_TRUE(indices == sent.indices) << "step " << t;
    EXPECT_TRUE(here.memory() == there.memory()) << "step " << t;
  }
}

// The device looks for such sums only where there can be one: numbers that stayed in the memory count.
TEST_F(FrameOnADevice, LeavesNumbersWithWhichASumIsTooLargeForAFloat) {
  constexpr std::size_t kSize = 131'072;
  constexpr std::size_t kLarge = 65;  // one more than are sent
  Sifter sifter(kSparseLoco, "ef", {.layout = Layout(kSize)});
  Codec codec("auto:values=int2");
  Numbers numbers = make({.size = kSize, .sparsifier = ""}, 1);
  for (std::size_t i = 0; i < kLarge; ++i) numbers[i] = 2.5e38F;
  const Copy copy(numbers.data(), numbers.size() * sizeof(float));
  Gradient gradient(copy.data(), NumberType::f32, kSize);
  gradient.device = kDevice;
  gradient.stream = device_test::stream();
  std::vector<std::byte> frame;
  SparseVector sent;
  ASSERT_TRUE(sifter.sift_into(gradient, *codec.planner(), frame, sent));
  ASSERT_EQ(sifter.memory()[kLarge - 1], 2.5e38F);
  SparseVector sum;
  sum.dim = kSize;
  sum.indices = {kLarge - 1};
  sum.values = {1e38F};
  try {
    sifter.sift(sum, sent);
    ADD_FAILURE() << "2.5e38 + 1e38 was taken for a float";
  } catch (const BadGradient& error) {
    EXPECT_EQ(error.index(), kLarge - 1);
  }
}

TEST_F(FrameOnADevice, LeavesNoEntriesWhereAGradientIsRefused) {
  const Numbers numbers(8192, 1.0F);
  const Copy copy(numbers.data(), numbers.size() * 4);
  Sifter sifter("topk:k=64,chunk=4096", "ef", {.layout = Layout(8192)});
  Codec codec("auto:values=int2");
  std::vector<std::byte> frame;
  SparseVector sent;
  sent.dim = 8192;
  sent.indices = {3};
  sent.values = {1};
  Gradient shorter(copy.data(), NumberType::f32, 8000);
  shorter.device = kDevice;
  shorter.stream = device_test::stream();
  EXPECT_THROW(sifter.sift_into(shorter, *codec.planner(), frame, sent), UsageError);
  EXPECT_EQ(sent.size(), 0U);
}

// What is not written on a device is written on the host.
TEST_F(FrameOnADevice, IsWrittenOnTheHostWhereTheDeviceCannot) {
  const std::size_t size = 50'000;
  EXPECT_EQ(Codec("auto:values=f32").planner(), nullptr);
  EXPECT_EQ(Codec("auto:values=int2,block=64").planner(), nullptr);
  for (const char* codec : {"bitmap:values=int2", "raw32:values=int2", "runs:values=int2"}) {
    EXPECT_EQ(run({.size = size, .sparsifier = "topk:k=100,chunk=1000", .codec = codec}, 4), 0);
  }
  EXPECT_EQ(run({.size = size, .sparsifier = "topk:k=2,chunk=1000"}, 4), 0);  // too few
  EXPECT_EQ(run({.size = size, .sparsifier = "topk:ratio=0.05"}, 4), 0);      // one unit
  EXPECT_EQ(run({.size = size, .sparsifier = "threshold:lambda=2"}, 4), 0);
  EXPECT_EQ(run({.size = size, .sparsifier = "dense"}, 2), 0);
}

}  // namespace
}  // namespace sparsewire::device_frame_test
