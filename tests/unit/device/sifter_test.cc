// A Sifter whose gradients are on a device beside one on the host: the same entries, statistics and saved states, bit
// for bit. With a pretended device these tests run everywhere; with a GPU they are in tests/cuda.
#include "sparsewire/sifter.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "sparsewire/errors.h"
#include "sparsewire/support/half.h"
#include "unit/device/arrays.h"

namespace sparsewire::device_sifter_test {
namespace {

using device_test::Copy;
using device_test::kDevice;
using Numbers = std::vector<float>;

class OnADevice : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = device_test::why_none(); !why.empty()) GTEST_SKIP() << why;
  }
};

// ---- Gradients ----

Numbers normal(std::size_t size, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> draw;
  Numbers all(size);
  for (float& one : all) one = draw(random);
  return all;
}
Numbers make(const std::string& kind, std::size_t size, std::uint64_t seed) {
  if (kind == "equal") return Numbers(size, -0.25F);
  Numbers all = normal(size, seed);
  for (std::size_t i = 0; i < size; ++i) {
    float& one = all[i];
    if (kind == "ties") one = std::round(2 * one);
    if (kind == "mostly_zero") one = i % 97 == seed % 97 ? one : -0.0F;
    if (kind == "tiny") one *= 1e-40F;
    if (kind == "jumps") one *= seed % 4 == 1 ? 100.0F : seed % 4 == 3 ? 0.001F : 1.0F;
    if (kind == "clustered") one *= i / 5000 % 7 == seed % 7 ? 50.0F : 1.0F;
  }
  return all;
}
std::vector<std::string> kinds(std::size_t size) {
  if (size == 0) return {"normal"};
  if (size < 4'000) return {"normal", "ties", "mostly_zero"};
  return {"normal", "equal", "ties", "mostly_zero", "tiny", "jumps", "clustered"};
}

// The same numbers in one of the formats, on the host and on the device.
class Both {
 public:
  Both(const Numbers& numbers, NumberType type)
      : floats_(numbers), type_(type), bits_(type == NumberType::f32 ? 0 : numbers.size()), copy_(fill(), bytes()) {}

  Gradient here() const { return {data(), type_, floats_.size()}; }
  Gradient there() const {
    Gradient gradient(copy_.data(), type_, floats_.size());
    gradient.device = kDevice;
    gradient.stream = device_test::stream();
    return gradient;
  }

 private:
  const void* fill() {
    for (std::size_t i = 0; i < bits_.size(); ++i) {
      const bool finite = std::isfinite(floats_[i]);
      const std::uint16_t other = type_ == NumberType::bf16 ? 0x7F80 : 0x7C00;  // infinity, or NaN
      bits_[i] = finite ? (type_ == NumberType::bf16 ? to_bf16(floats_[i]) : to_f16(floats_[i]))
                        : static_cast<std::uint16_t>(other + (std::isnan(floats_[i]) ? 1 : 0));
    }
    return data();
  }
  const void* data() const {
    return type_ == NumberType::f32 ? static_cast<const void*>(floats_.data()) : static_cast<const void*>(bits_.data());
  }
  std::size_t bytes() const { return floats_.size() * (type_ == NumberType::f32 ? 4 : 2); }

  Numbers floats_;
  NumberType type_;
  std::vector<std::uint16_t> bits_;
  Copy copy_;
};

// ---- Comparison ----

// Where two arrays differ first, with both numbers; empty: nowhere.
template <class T>
std::string difference(const std::vector<T>& here, const std::vector<T>& there) {
  for (std::size_t i = 0; i < std::max(here.size(), there.size()); ++i) {
    if (i < here.size() && i < there.size() &&
        std::bit_cast<std::uint32_t>(here[i]) == std::bit_cast<std::uint32_t>(there[i])) {
      continue;
    }
    const auto text = [&](const std::vector<T>& all) { return i < all.size() ? std::to_string(all[i]) : "nothing"; };
    return "number " + std::to_string(i) + " of " + std::to_string(here.size()) + " is " + text(here) +
           " on the host and " + text(there) + " of " + std::to_string(there.size()) + " on the device";
  }
  return {};
}

struct Setting {
  std::string sparsifier;
  std::string feedback = "ef";
  NumberType type = NumberType::f32;
  SifterContext context = {};
};

class Pair {
 public:
  explicit Pair(const Setting& setting)
      : setting_(setting),
        here_(setting.sparsifier, setting.feedback, setting.context),
        there_(setting.sparsifier, setting.feedback, setting.context) {}

  // One step of both, with all that may follow it. Returns whether the gradient was bad.
  bool step(const Numbers& numbers, std::uint64_t t) {
    const Both gradient(numbers, setting_.type);
    const float lr = 0.1F + 0.01F * static_cast<float>(t);
    const float unscale = t % 3 == 2 ? 0.5F : 1.0F;
    std::string bad_here;
    std::string bad_there;
    sift(here_, gradient.here(), sent_here_, lr, unscale, bad_here);
    sift(there_, gradient.there(), sent_there_, lr, unscale, bad_there);
    EXPECT_EQ(bad_here, bad_there);
    compare();
    if (!bad_here.empty() || testing::Test::HasFailure()) return !bad_here.empty();
    EXPECT_EQ(there_.device(), kDevice);
    if (t % 5 == 3) {
      here_.undo(gradient.here(), sent_here_, lr, unscale);
      there_.undo(gradient.there(), sent_there_, lr, unscale);
      compare_states();
      return false;
    }
    if (t % 7 == 5) {
      here_.flush(sent_here_);
      there_.flush(sent_there_);
      compare();
      return false;
    }
    follow(here_, sent_here_, t);
    follow(there_, sent_there_, t);
    compare_states();
    return false;
  }

  // Each continues where the other is.
  void change_places() {
    const std::vector<std::byte> here = here_.save();
    const std::vector<std::byte> there = there_.save();
    Sifter other_here(setting_.sparsifier, setting_.feedback, setting_.context);
    other_here.load(there);
    here_ = std::move(other_here);
    there_.load(here);
  }
  void move_back_and_forth() {
    there_.move_to({});
    EXPECT_EQ(there_.device(), Device{});
    compare_states();
  }

  void write(const Numbers& memory, const Numbers& velocity) {
    for (Sifter* one : {&here_, &there_}) {
      one->write_memory(memory);
      one->write_velocity(velocity);
    }
  }

  void compare_states() {
    EXPECT_EQ(difference(here_.memory(), there_.memory()), "") << "memory";
    EXPECT_EQ(difference(here_.velocity(), there_.velocity()), "") << "velocity";
    EXPECT_TRUE(here_.save() == there_.save());
  }

 private:
  static void sift(Sifter& sifter, const Gradient& gradient, SparseVector& sent, float lr, float unscale,
                   std::string& bad) {
    try {
      sifter.sift(gradient, sent, lr, unscale);
    } catch (const BadGradient& error) {
      bad = error.what();
    }
  }

  // What a worker does after a sift: some of the values were rounded, and the others have an opinion.
  static void follow(Sifter& sifter, SparseVector& sent, std::uint64_t t) {
    Numbers received = sent.values;
    if (t % 4 == 1) {
      for (float& one : received) one = from_bf16(to_bf16(one));
      sifter.keep_rounding_loss(sent, received);
      sent.values = received;
    }
    Numbers update = sent.values;
    for (std::size_t i = 0; i < update.size(); ++i) update[i] *= i % 3 == 0 ? 0.01F : i % 3 == 1 ? -0.4F : 1.0F;
    std::vector<std::uint8_t> came_back(sent.size());
    for (std::size_t i = 0; i < came_back.size(); ++i) came_back[i] = i % 5 != 0 ? 1 : 0;
    sifter.observe(sent, update, t % 2 == 0 ? came_back : std::vector<std::uint8_t>());
    if (sifter.is_voting() && sifter.vote()) sifter.set_vote(*sifter.vote());
  }

  void compare() {
    EXPECT_EQ(difference(sent_here_.indices, sent_there_.indices), "") << "indices";
    EXPECT_EQ(difference(sent_here_.values, sent_there_.values), "") << "values";
    EXPECT_EQ(sent_here_.draw, sent_there_.draw);
    const SiftStats& here = here_.stats();
    const SiftStats& there = there_.stats();
    EXPECT_EQ(here.sent_norm2, there.sent_norm2);
    EXPECT_EQ(here.memory_norm2, there.memory_norm2);
    EXPECT_EQ(here.total_error, there.total_error);
    compare_states();
  }

  Setting setting_;
  Sifter here_;
  Sifter there_;
  SparseVector sent_here_;
  SparseVector sent_there_;
};

std::vector<std::size_t> sizes() {
  if (!device_test::is_fast()) return {0, 1, 33, 4097};
  return {0, 1, 31, 32, 33, 4095, 4096, 4097, 100'003};
}

void run(const Setting& setting, const std::string& kind, std::uint64_t steps) {
  Pair pair(setting);
  for (std::uint64_t t = 0; t < steps && !testing::Test::HasFailure(); ++t) {
    SCOPED_TRACE(setting.sparsifier + ", " + setting.feedback + ", type " +
                 std::to_string(static_cast<int>(setting.type)) + ", " + std::to_string(setting.context.layout.dim()) +
                 " entries, scope " + std::to_string(static_cast<int>(setting.context.scope)) + ", " + kind +
                 ", step " + std::to_string(t));
    pair.step(make(kind, setting.context.layout.dim(), t), t);
    if (t == 8) pair.change_places();
    if (t == 10) pair.move_back_and_forth();
  }
}

// Tensors of several sizes; some are smaller than 100.
Layout tensors(std::size_t size) {
  std::vector<TensorRange> all;
  std::size_t begin = 0;
  for (std::size_t t = 0; begin < size; ++t) {
    const std::size_t wanted = t % 3 == 0 ? 17 : t % 3 == 1 ? 600 : size / 3 + 1;
    const std::size_t count = std::min(wanted, size - begin);
    all.push_back({"t" + std::to_string(t), count});
    begin += count;
  }
  return Layout(all);
}

// ---- Every sparsifier ----

const std::vector<std::string> kSparsifiers = {"topk:ratio=0.01",
                                               "topk:ratio=0.3",
                                               "topk:k=3,chunk=64",
                                               "topk:ratio=0.05,chunk=4096",
                                               "topk:ratio=0.02,dense_below=100",
                                               "topk:ratio=0.1,warmup_from=0.9,warmup_steps=4",
                                               "threshold:lambda=1.5",
                                               "threshold:lambda=1e-42",
                                               "threshold:lambda=0.7,dense_below=100",
                                               "threshold:ratio=0.1,calibrate=4",
                                               "threshold:ratio=0.05,rule=sqrt",
                                               "randomk:ratio=0.05",
                                               "randomk:ratio=0.05,dense_below=100",
                                               "rtopk:ratio=0.02,r=3",
                                               "rtopk:ratio=0.02,r_ratio=0.5,dense_below=100",
                                               "regtopk:ratio=0.02,mu=2",
                                               "regtopk:ratio=0.05,mu=1,q=0.3,form=b,withheld=unknown",
                                               "regtopk:ratio=0.05,q=-1,dense_below=100",
                                               "dense"};
// k= and chunk= do not suit a model of less.
bool suits(const std::string& sparsifier, std::size_t size) {
  return size >= 3 || sparsifier.find("k=3") == std::string::npos;
}

class EverySparsifierOnADevice : public OnADevice, public testing::WithParamInterface<std::string> {};

TEST_P(EverySparsifierOnADevice, HasTheBitsOfTheHostForEveryInput) {
  for (const std::size_t size : sizes()) {
    if (!suits(GetParam(), size)) continue;
    for (const std::string& kind : kinds(size)) {
      run({GetParam(),
           size == 0 ? "momentum:clip=1" : "ef",
           NumberType::f32,
           {.layout = Layout(size), .rank = 1, .ranks = 3, .seed = 5}},
          kind, 12);
      if (HasFailure()) return;
    }
  }
}

// On a device a guess of the k-th entries of all layers must not change the result either.
TEST_P(EverySparsifierOnADevice, HasTheBitsOfTheHostByLayerForEveryInput) {
  const std::size_t size = device_test::is_fast() ? 40'011 : 1'503;
  for (const std::string& kind : kinds(size)) {
    run({.sparsifier = GetParam(), .context = {.layout = tensors(size), .scope = Scope::layer}}, kind, 10);
    if (HasFailure()) return;
  }
}

TEST_P(EverySparsifierOnADevice, HasTheBitsOfTheHostForEveryFeedbackTypeAndScope) {
  for (const std::string feedback : {"ef:decay=0.95,scale=lr", "none", "momentum:m=0.9", "momentum:m=0.5,clip=0.3"}) {
    for (const NumberType type : {NumberType::f32, NumberType::bf16, NumberType::f16}) {
      for (const Scope scope : {Scope::model, Scope::layer}) {
        const std::size_t size = device_test::is_fast() ? 20'011 : 1'003;
        run({GetParam(), feedback, type, {.layout = tensors(size), .scope = scope, .rank = 2, .ranks = 4}}, "normal",
            9);
        run({GetParam(), feedback, type, {.layout = tensors(size), .scope = scope}}, "ties", 5);
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(EverySparsifierOnADevice, TakesABadGradientBackWithTheBitsOfTheHost) {
  const std::size_t size = device_test::is_fast() ? 9'001 : 1'501;
  for (const std::string feedback : {"ef:decay=0.5", "none", "momentum:m=0.9", "momentum:m=0.5,clip=2"}) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), -3e38F}) {
      for (const std::size_t at : {std::size_t{0}, size / 2, size - 1}) {
        const NumberType type = at == 0 || std::isfinite(bad) ? NumberType::f32 : NumberType::f16;
        Pair pair(
            {GetParam(), feedback, type, {.layout = tensors(size), .scope = at == 0 ? Scope::layer : Scope::model}});
        for (std::uint64_t t = 0; t < 5; ++t) {
          SCOPED_TRACE(feedback + ", at " + std::to_string(at) + ", step " + std::to_string(t));
          Numbers numbers = normal(size, t);
          if (t == 1 && std::isfinite(bad)) numbers[at] = bad;
          if (t == 2) numbers[at] = bad;
          if (t == 2) numbers[size - 1] = bad;
          const bool was_bad = pair.step(numbers, t);
          EXPECT_TRUE(was_bad || t != 2 || std::isfinite(bad));
          if (HasFailure()) return;
        }
      }
    }
  }
}

std::string name_of(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& one : name) one = std::isalnum(static_cast<unsigned char>(one)) != 0 ? one : '_';
  return name;
}
INSTANTIATE_TEST_SUITE_P(Device, EverySparsifierOnADevice, testing::ValuesIn(kSparsifiers), name_of);

using SifterOnADevice = OnADevice;

TEST_F(SifterOnADevice, SiftsLargeModels) {
  if (!device_test::is_fast()) GTEST_SKIP() << "for a real device";
  constexpr std::size_t kSize = 1'000'003;
  for (const std::string sparsifier : {"topk:ratio=0.001", "topk:k=64,chunk=4096", "threshold:lambda=3",
                                       "rtopk:ratio=0.001", "regtopk:ratio=0.001", "topk:ratio=0.01,dense_below=100"}) {
    run({.sparsifier = sparsifier, .context = {.layout = tensors(kSize)}}, "normal", 10);
    if (HasFailure()) return;
  }
  for (const std::string sparsifier : {"topk:ratio=0.001", "rtopk:ratio=0.001", "regtopk:ratio=0.001"}) {
    for (const std::string kind : {"normal", "equal", "ties"}) {
      run({.sparsifier = sparsifier, .context = {.layout = tensors(kSize), .scope = Scope::layer}}, kind, 7);
      if (HasFailure()) return;
    }
  }
  // So many candidates in a unit that they have to be gathered elsewhere.
  for (const std::string sparsifier : {"topk:ratio=0.02", "rtopk:ratio=0.02", "regtopk:ratio=0.02"}) {
    run({.sparsifier = sparsifier, .context = {.layout = tensors(kSize), .scope = Scope::layer}}, "normal", 7);
    if (HasFailure()) return;
  }
}

// RegTop-k's last round comes to the device while the pass is running. Here it is so long that the pass ends first.
TEST_F(SifterOnADevice, WaitsForALongLastRound) {
  if (!device_test::is_fast()) GTEST_SKIP() << "for a real device";
  constexpr std::size_t kSize = 2'000'003;
  for (const Scope scope : {Scope::model, Scope::layer}) {
    run({.sparsifier = "regtopk:ratio=0.06", .context = {.layout = tensors(kSize), .scope = scope}}, "normal", 6);
    if (HasFailure()) return;
  }
}

// With clipping the pass adds the gradient to the velocity, too. Here the sum in the memory is too large, not the
// velocity.
TEST_F(SifterOnADevice, TakesASumOfVelocitiesBackThatIsTooLarge) {
  constexpr std::size_t kSize = 9'000;
  for (const std::string sparsifier : {"topk:k=9", "topk:k=9,chunk=5000", "rtopk:k=9"}) {
    for (const NumberType type : {NumberType::f32, NumberType::bf16}) {
      SCOPED_TRACE(sparsifier);
      Pair pair({sparsifier, "momentum:m=0.5,clip=2", type, {.layout = Layout(kSize)}});
      EXPECT_FALSE(pair.step(normal(kSize, 1), 1));
      Numbers memory = normal(kSize, 2);
      Numbers velocity = normal(kSize, 3);
      memory[5'000] = 3.1e38F;
      velocity[5'000] = 1e38F;
      pair.write(memory, velocity);
      EXPECT_TRUE(pair.step(normal(kSize, 4), 2));
      memory[5'000] = 3;
      pair.write(memory, velocity);
      EXPECT_FALSE(pair.step(normal(kSize, 5), 4));
      if (HasFailure()) return;
    }
  }
}

// With a factor so near to 1 a velocity of the largest floats might overflow: it is added before the pass.
TEST_F(SifterOnADevice, AddsVelocitiesThatMightOverflow) {
  for (const std::string sparsifier : {"topk:k=9", "topk:k=9,chunk=5000", "threshold:lambda=0.1"}) {
    run({sparsifier, "momentum:m=0.999999,clip=2", NumberType::f32, {.layout = Layout(9'000)}}, "normal", 9);
    if (HasFailure()) return;
  }
}

// What an aggregator does.
TEST_F(SifterOnADevice, SiftsSparseSumsWithTheBitsOfTheHost) {
  for (const std::string sparsifier : {"topk:ratio=0.05", "threshold:lambda=1", "dense", "rtopk:ratio=0.05"}) {
    for (const std::string feedback : {"ef", "none"}) {
      SCOPED_TRACE(sparsifier + ", " + feedback);
      const SifterContext context{.layout = Layout(5'000)};
      Sifter here(sparsifier, feedback, context);
      Sifter there(sparsifier, feedback, context);
      there.move_to(kDevice);
      SparseVector sent_here;
      SparseVector sent_there;
      for (std::uint64_t t = 0; t < 8; ++t) {
        SparseVector sum;
        sum.dim = 5'000;
        const Numbers numbers = normal(5'000, t);
        for (std::uint32_t i = 0; i < 5'000; ++i) {
          if ((i + t) % 7 != 0) continue;
          sum.indices.push_back(i);
          sum.values.push_back(t == 3 && i > 2'000 ? 3e38F : numbers[i]);
        }
        if (t == 6) sum.values[40] = std::numeric_limits<float>::infinity();
        if (t == 6) {
          EXPECT_THROW(here.sift(sum, sent_here), BadGradient);
          EXPECT_THROW(there.sift(sum, sent_there), BadGradient);
        } else {
          here.sift(sum, sent_here);
          there.sift(sum, sent_there);
        }
        EXPECT_EQ(difference(sent_here.indices, sent_there.indices), "");
        EXPECT_EQ(difference(sent_here.values, sent_there.values), "");
        if (t == 3) {
          here.undo(sum, sent_here);
          there.undo(sum, sent_there);
        }
        EXPECT_EQ(difference(here.memory(), there.memory()), "");
        ASSERT_TRUE(here.save() == there.save());
        ASSERT_EQ(there.device(), kDevice);
      }
    }
  }
}

// The device looks for such sums only where there can be one: numbers that stayed, or came from outside, count.
TEST_F(SifterOnADevice, FindsSumsThatAreTooLargeForAFloat) {
  for (const bool is_written : {false, true}) {
    SCOPED_TRACE(is_written ? "numbers from outside" : "numbers that stayed");
    const SifterContext context{.layout = Layout({{"all", 5'000}})};
    Sifter here("topk:k=1", "ef", context);
    Sifter there("topk:k=1", "ef", context);
    there.move_to(kDevice);
    SparseVector sent_here;
    SparseVector sent_there;
    SparseVector sum;
    sum.dim = 5'000;
    sum.indices = {7, 100, 4'999};
    sum.values = {1e38F, is_written ? 1.0F : 2.5e38F, 3e38F};
    for (Sifter* const one : {&here, &there}) {
      SparseVector& sent = one == &here ? sent_here : sent_there;
      one->sift(sum, sent);
      if (is_written) {
        Numbers numbers(5'000, 0.0F);
        numbers[100] = 2.5e38F;
        one->write_memory("all", Gradient(numbers));
      }
      sum.values = {1.0F, 1e38F, 1.0F};
      try {
        one->sift(sum, sent);
        ADD_FAILURE() << "2.5e38 + 1e38 was taken for a float";
      } catch (const BadGradient& error) {
        EXPECT_EQ(error.index(), 100U);
      }
      sum.values = {1.0F, 1e37F, 1.0F};
      one->sift(sum, sent);
      sum.values = {1e38F, is_written ? 1.0F : 2.5e38F, 3e38F};
    }
    EXPECT_EQ(difference(sent_here.values, sent_there.values), "");
    EXPECT_EQ(difference(here.memory(), there.memory()), "");
  }
}

// Sends what is larger than 1.
class LargerThanOne final : public Sparsifier {
 public:
  void choose(std::span<const float> sums, std::uint64_t /*step*/, std::vector<std::uint32_t>& chosen) override {
    for (std::uint32_t i = 0; i < sums.size(); ++i) {
      if (std::abs(sums[i]) > 1 || i % 50 == 0) chosen.push_back(i);
    }
  }
};

TEST_F(SifterOnADevice, WorksWithASparsifierFromOutside) {
  const Registration registered =
      register_sparsifier({"larger_than_one", "those larger than 1", "larger_than_one"},
                          [](Spec&, const SifterContext&) { return std::make_unique<LargerThanOne>(); });
  run({.sparsifier = "larger_than_one", .context = {.layout = Layout(5'000)}}, "ties", 9);
  run({"larger_than_one", "momentum:m=0.9", NumberType::f16, {.layout = Layout(5'000)}}, "normal", 9);
}

TEST_F(SifterOnADevice, ReadsAndWritesTheMemoryFromTheHost) {
  Sifter sifter("topk:k=2", "momentum", {.layout = tensors(100), .device = kDevice});
  EXPECT_EQ(sifter.device(), kDevice);
  const Numbers numbers = normal(17, 1);
  sifter.write_memory("t0", numbers);
  Numbers read(17);
  sifter.read_memory("t0", read);
  EXPECT_EQ(difference(read, numbers), "");
  sifter.write_velocity(normal(100, 2));
  EXPECT_EQ(difference(sifter.velocity(), normal(100, 2)), "");
}

TEST_F(SifterOnADevice, RefusesWhatDoesNotFit) {
  Sifter sifter("topk:k=2", "ef", {.layout = Layout(100)});
  SparseVector sent;
  const Both right(normal(100, 1), NumberType::f32);
  Gradient gradient = right.there();
  gradient.size = 99;
  EXPECT_THROW(sifter.sift(gradient, sent), UsageError);
  gradient = right.there();
  gradient.device.index = 77;
  EXPECT_THROW(sifter.sift(gradient, sent), UsageError);
  gradient = right.here();
  gradient.device = kDevice;  // but it is not
  EXPECT_THROW(sifter.sift(gradient, sent), UsageError);
  EXPECT_EQ(sifter.step(), 0U);
  sifter.sift(right.there(), sent);
  EXPECT_EQ(sent.size(), 2U);
  EXPECT_THROW(sifter.undo(right.here(), sent), UsageError);
  sifter.undo(right.there(), sent);
  EXPECT_EQ(sifter.step(), 0U);
  sifter.sift(right.here(), sent);
  EXPECT_EQ(sifter.device(), Device{});
}

}  // namespace
}  // namespace sparsewire::device_sifter_test
