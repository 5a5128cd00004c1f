// A NaN, an infinity or a sum that overflows is found wherever it is and reported with the lowest index, for any Pool;
// the memory is as it was, the step does not count, and the next one works.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "sparsewire/errors.h"
#include "sparsewire/sifter.h"
#include "unit/bare_sparsifier.h"
#include "unit/specs.h"
#include "unit/walk.h"

namespace sparsewire::bad_gradient_test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr std::uint64_t kFirstStep = 41;
constexpr int kRank = 3;
constexpr std::size_t kLarge = 140001;  // enough for several threads to have work

// A bad entry: the number in the gradient, and the number in the memory at the same index.
struct Trouble {
  const char* name;
  float gradient;
  float memory;
};

constexpr Trouble kNotANumber = {"NaN", kNaN, 1};
const std::vector<Trouble>& troubles() {
  static const std::vector<Trouble> all = {kNotANumber,
                                           {"infinity", kInfinity, 1},
                                           {"-infinity", -kInfinity, 0},
                                           {"overflow", 3e38F, 2e38F},
                                           {"negative overflow", -3e38F, -2e38F}};
  return all;
}

SifterContext context_of(Layout layout, int threads, Scope scope = Scope::model) {
  return {.layout = std::move(layout),
          .scope = scope,
          .rank = kRank,
          .ranks = 5,
          .seed = 1,
          .first_step = kFirstStep,
          .pool = pool_of(threads)};
}

// The BadGradient that `act` throws; checks that its message contains rank, step and index.
template <class Act>
std::optional<BadGradient> thrown_by(Act&& act) {
  try {
    act();
  } catch (const BadGradient& error) {
    const std::string message = error.what();
    for (const std::uint64_t number : {static_cast<std::uint64_t>(error.rank()), error.step(), error.index()}) {
      EXPECT_THAT(message, ::testing::HasSubstr(std::to_string(number)));
    }
    return error;
  }
  return std::nullopt;
}

class BadGradients : public ::testing::TestWithParam<std::string> {
 protected:
  // A good step, one with bad entries at `positions` (ascending), the same one without them. All other numbers add
  // without rounding, so the memory must be restored exactly.
  static void expect_taken_back(const std::string& spec, const SifterContext& context,
                                const std::vector<std::size_t>& positions, const Trouble& trouble) {
    const std::size_t n = context.layout.dim();
    SCOPED_TRACE(::testing::Message() << spec << ": " << trouble.name << " at " << positions.front() << " of " << n);
    const std::unique_ptr<BareSparsifier> sparsifier = make_bare(spec, context);
    const std::unique_ptr<BareSparsifier> spared = make_bare(spec, context);
    const std::vector<Numbers> gradients = reference::sequence(reference::input("exact"), n, 2, 3);
    Numbers memory(n);
    Numbers spared_memory(n);
    SparseVector out;
    SparseVector spared_out;
    sparsifier->sift(Gradient(gradients[0]), memory, out);
    sparsifier->observe(out, made_up_update(out, context));
    spared->sift(Gradient(gradients[0]), spared_memory, spared_out);
    spared->observe(spared_out, made_up_update(spared_out, context));

    Numbers bad = gradients[1];
    for (const std::size_t i : positions) {
      bad[i] = trouble.gradient;
      memory[i] = trouble.memory;
    }
    const Numbers before = memory;
    const auto error = thrown_by([&] { sparsifier->sift(Gradient(bad), memory, out); });
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->index(), positions.front());
    EXPECT_EQ(error->rank(), kRank);
    EXPECT_EQ(error->step(), kFirstStep + 1);
    EXPECT_EQ(out.size(), 0U);
    ASSERT_EQ(memory, before);
    for (const std::size_t i : positions) ASSERT_EQ(bits_of(memory[i]), bits_of(before[i]));

    for (const std::size_t i : positions) memory[i] = spared_memory[i];
    sparsifier->sift(Gradient(gradients[1]), memory, out);
    spared->sift(Gradient(gradients[1]), spared_memory, spared_out);
    EXPECT_TRUE(same_bits(spared_out, out));
    EXPECT_TRUE(same_bits(spared_memory, memory));
  }

  static void expect_taken_back(std::size_t n, const std::vector<std::size_t>& positions, const Trouble& trouble,
                                int threads) {
    SCOPED_TRACE(std::to_string(threads) + " threads");
    expect_taken_back(GetParam(), context_of(n, threads), positions, trouble);
  }
};

INSTANTIATE_TEST_SUITE_P(Specs, BadGradients, ::testing::ValuesIn(every_spec()), spec_as_name);

TEST_P(BadGradients, AreFoundAndTakenBack) {
  for (const Trouble& trouble : troubles()) {
    for (const std::size_t i : {0U, 7U, 16U}) ASSERT_NO_FATAL_FAILURE(expect_taken_back(17, {i}, trouble, 1));
    ASSERT_NO_FATAL_FAILURE(expect_taken_back(1, {0}, trouble, 1));
    ASSERT_NO_FATAL_FAILURE(expect_taken_back(kLarge, {70001}, trouble, 3));
  }
  for (const std::size_t i :
       kSlowBuild ? std::vector{8191U, 65536U, 140000U} : std::vector{0U, 8191U, 8192U, 65535U, 65536U, 140000U}) {
    ASSERT_NO_FATAL_FAILURE(expect_taken_back(kLarge, {i}, kNotANumber, 1));
  }
}

TEST_P(BadGradients, AreReportedByTheLowestIndex) {
  for (const int threads : {1, 2, 3}) {
    ASSERT_NO_FATAL_FAILURE(expect_taken_back(kLarge, {9, 10, 70000, 140000}, kNotANumber, threads));
    ASSERT_NO_FATAL_FAILURE(expect_taken_back(kLarge, {65536, 65537, 139999}, troubles()[3], threads));
  }
  std::vector<std::size_t> everywhere(1000);
  std::iota(everywhere.begin(), everywhere.end(), 0U);
  ASSERT_NO_FATAL_FAILURE(expect_taken_back(1000, everywhere, troubles()[1], 2));
}

// Small tensors, which are sent densely, between large ones: the lowest index is reported, whichever kind of tensor it
// is in.
TEST_P(BadGradients, AreFoundInEveryTensor) {
  const Layout layout = layout_of({100, 5, 0, 200, 3, 4, 300, 7});
  std::vector<std::string> specs = {GetParam()};
  if (GetParam() != "dense") specs.push_back(with(GetParam(), "dense_below=10"));
  for (const std::string& spec : specs) {
    for (const Scope scope : {Scope::model, Scope::layer}) {
      const SifterContext context = context_of(layout, 1, scope);
      for (const std::size_t i : {0U, 99U, 100U, 104U, 105U, 304U, 305U, 308U, 311U, 312U, 611U, 612U, 618U}) {
        ASSERT_NO_FATAL_FAILURE(expect_taken_back(spec, context, {i}, kNotANumber));
        if (i < 618) {
          ASSERT_NO_FATAL_FAILURE(expect_taken_back(spec, context, {i, 618}, kNotANumber));
        }
        if (i < 400) {
          ASSERT_NO_FATAL_FAILURE(expect_taken_back(spec, context, {i, 400, 401}, troubles()[3]));
        }
      }
    }
  }
}

TEST_P(BadGradients, LeaveTheMemoryAsItWasToRounding) {
  constexpr std::size_t kSize = 5003;
  for (const char* kind : {"normal", "spread_scales", "near_the_largest", "denormals"}) {
    SCOPED_TRACE(kind);
    const std::vector<Numbers> gradients = reference::sequence(reference::input(kind), kSize, 3, 9);
    const std::unique_ptr<BareSparsifier> sparsifier = make_bare(GetParam(), context_of(kSize, 1));
    Numbers memory(kSize);
    SparseVector out;
    sparsifier->sift(Gradient(gradients[0]), memory, out);
    for (const auto& [scale, decay] : {std::pair{1.0F, 1.0F}, {0.3F, 0.95F}}) {
      const Numbers before = memory;
      Numbers bad = gradients[1];
      bad[4000] = kNaN;
      bad[4500] = -kInfinity;
      kernels::ScaledGradient gradient = Gradient(bad);
      gradient.scale = scale;
      gradient.decay = decay;
      const auto error = thrown_by([&] { sparsifier->sift(gradient, memory, out); });
      ASSERT_TRUE(error.has_value());
      EXPECT_EQ(error->index(), 4000U);
      EXPECT_TRUE(same_to_rounding(before, memory, bad, decay == 1 ? 0x1p-22 : 0x1p-21));
      EXPECT_EQ(bits_of(memory[4000]), bits_of(before[4000]));
      EXPECT_EQ(bits_of(memory[4500]), bits_of(before[4500]));
    }
    EXPECT_NO_THROW(sparsifier->sift(Gradient(gradients[1]), memory, out));
  }
}

// The bound that errors.h states: it depends on the decay.
TEST_P(BadGradients, RestoreTheMemoryWithinTheDocumentedBound) {
  constexpr std::size_t kSize = 5003;
  constexpr double kSmallest = 0x1p-149;  // a rounding of subnormal numbers
  const Numbers before = reference::input("normal").make(kSize, 0, 9);
  Numbers bad = reference::input("spread_scales").make(kSize, 1, 9);
  bad[4000] = kNaN;
  for (const float scale : {1.0F, 0.3F}) {
    for (const float decay : {1.0F, 0.5F, 1e-3F, 1e-6F}) {
      SCOPED_TRACE(::testing::Message() << "scale " << scale << ", decay " << decay);
      const std::unique_ptr<BareSparsifier> sparsifier = make_bare(GetParam(), context_of(kSize, 1));
      kernels::ScaledGradient gradient = Gradient(bad);
      gradient.scale = scale;
      gradient.decay = decay;
      Numbers memory = before;
      SparseVector out;
      ASSERT_TRUE(thrown_by([&] { sparsifier->sift(gradient, memory, out); }).has_value());
      for (std::size_t i = 0; i < kSize; ++i) {
        if (i == 4000) continue;
        const double bound = 3e-7 * std::fabs(double{before[i]}) +
                             (1e-7 * std::fabs(double{scale} * bad[i]) + kSmallest) / double{decay};
        ASSERT_NEAR(memory[i], before[i], bound) << "at " << i << ", gradient " << bad[i];
      }
    }
  }
}

TEST_P(BadGradients, AreFoundAtEverySimdLevel) {
  for (const std::string& level : kernels::simd_levels()) {
    SCOPED_TRACE(level);
    const AtLevel at(level);
    for (std::size_t i = 0; i < 35; ++i) ASSERT_NO_FATAL_FAILURE(expect_taken_back(35, {i}, kNotANumber, 1));
  }
}

TEST_P(BadGradients, AreFoundInHalfPrecision) {
  constexpr std::size_t kSize = 1000;
  struct Half {
    NumberType type;
    std::uint16_t one;
    std::vector<std::uint16_t> bad;
  };
  for (const Half& half : {Half{NumberType::f16, 0x3C00, {0x7C00, 0xFC00, 0x7E01, 0xFC01}},
                           Half{NumberType::bf16, 0x3F80, {0x7F80, 0xFF80, 0x7FC1, 0xFF81}}}) {
    for (const std::uint16_t bad : half.bad) {
      SCOPED_TRACE(bad);
      for (const std::size_t index : {std::size_t{0}, std::size_t{555}, kSize - 1}) {
        const std::unique_ptr<BareSparsifier> sparsifier = make_bare(GetParam(), context_of(kSize, 1));
        std::vector<std::uint16_t> gradient(kSize, half.one);
        gradient[index] = bad;
        Numbers memory(kSize, 0.5F);
        SparseVector out;
        const auto error =
            thrown_by([&] { sparsifier->sift(Gradient(gradient.data(), half.type, kSize), memory, out); });
        ASSERT_TRUE(error.has_value());
        EXPECT_EQ(error->index(), index);
        EXPECT_EQ(memory, Numbers(kSize, 0.5F));
        gradient[index] = half.one;
        EXPECT_NO_THROW(sparsifier->sift(Gradient(gradient.data(), half.type, kSize), memory, out));
      }
    }
  }
}

TEST_P(BadGradients, IncludeAProductThatOverflows) {
  const std::unique_ptr<BareSparsifier> sparsifier = make_bare(GetParam(), context_of(40, 1));
  Numbers memory(40, 1.0F);
  Numbers gradient(40, 2.0F);
  gradient[33] = 2e38F;
  kernels::ScaledGradient scaled = Gradient(gradient);
  scaled.scale = 4;
  SparseVector out;
  const auto error = thrown_by([&] { sparsifier->sift(scaled, memory, out); });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->index(), 33U);
  EXPECT_EQ(memory, Numbers(40, 1.0F));
}

TEST_P(BadGradients, AreTakenBackUnderEveryFeedback) {
  constexpr std::size_t kSize = 3001;
  for (const char* feedback : {"ef", "ef:decay=0.9,scale=lr", "none", "momentum:m=0.9", "momentum:m=0.5,clip=1"}) {
    SCOPED_TRACE(feedback);
    for (const float trouble : {kNaN, kInfinity, -kInfinity}) {
      Sifter sifter(GetParam(), feedback, context_of(kSize, 1));
      SparseVector sent;
      const std::vector<Numbers> gradients = reference::sequence(reference::input("normal"), kSize, 3, 5);
      sifter.sift(Gradient(gradients[0]), sent, 0.5F);
      sifter.sift(Gradient(gradients[1]), sent, 0.5F);
      const Numbers memory = sifter.memory();
      const Numbers velocity = sifter.velocity();
      const SiftStats stats = sifter.stats();
      Numbers bad = gradients[2];
      bad[1234] = trouble;
      bad[2000] = kNaN;
      const auto error = thrown_by([&] { sifter.sift(Gradient(bad), sent, 0.5F); });
      ASSERT_TRUE(error.has_value());
      EXPECT_EQ(error->index(), 1234U);
      EXPECT_EQ(error->step(), kFirstStep + 2);
      EXPECT_EQ(sent.size(), 0U);

      Numbers moved = gradients[2];  // what may have been added and subtracted again
      for (std::size_t i = 0; i < velocity.size(); ++i) moved[i] = std::fabs(velocity[i]) + std::fabs(moved[i]);
      EXPECT_TRUE(same_to_rounding(memory, sifter.memory(), moved, 0x1p-20));
      EXPECT_TRUE(same_to_rounding(velocity, sifter.velocity(), moved, 0x1p-20));
      EXPECT_EQ(sifter.stats().step, stats.step);
      EXPECT_EQ(sifter.stats().total_error, stats.total_error);

      sifter.sift(Gradient(gradients[2]), sent, 0.5F);
      EXPECT_EQ(sifter.stats().step, stats.step + 1);
      for (const float x : sifter.memory()) ASSERT_TRUE(std::isfinite(x));
      for (const float x : sifter.velocity()) ASSERT_TRUE(std::isfinite(x));
    }
  }
}

// The velocity is finite, but the memory that it is added to overflows.
TEST_P(BadGradients, AreTakenBackFromAVelocityThatIsFinite) {
  Sifter sifter(GetParam(), "momentum:m=0.5", context_of(300, 1));
  SparseVector sent;
  sifter.sift(Gradient(reference::exact_numbers(300, 0, 1)), sent);
  Numbers large = sifter.memory();
  large[200] = 2e38F;
  sifter.write_memory(large);
  const Numbers memory = sifter.memory();
  const Numbers velocity = sifter.velocity();
  Numbers bad = reference::exact_numbers(300, 1, 1);
  bad[200] = 3e38F;
  const auto error = thrown_by([&] { sifter.sift(Gradient(bad), sent); });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->index(), 200U);
  EXPECT_EQ(error->step(), kFirstStep + 1);
  EXPECT_TRUE(same_bits(memory, sifter.memory()));
  for (std::size_t i = 0; i < velocity.size(); ++i) {
    if (i == 200) continue;  // 3e38 was added and subtracted again
    EXPECT_EQ(sifter.velocity()[i], velocity[i]) << i;
  }
  EXPECT_TRUE(std::isfinite(sifter.velocity()[200]));
}

}  // namespace
}  // namespace sparsewire::bad_gradient_test
