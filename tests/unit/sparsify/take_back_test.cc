// The memory after a step that was taken back: bits that depend on memory, gradient and factors alone.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "reference/inputs.h"
#include "sparsewire/errors.h"
#include "sparsewire/sifter.h"
#include "unit/bits.h"
#include "unit/machines.h"
#include "unit/specs.h"
#include "unit/walk.h"

namespace sparsewire::take_back_test {
namespace {

// fl((a - fl(s*g)) / decay), limited to finite numbers; the old number where the sum a is not finite.
Numbers round_trip(const Numbers& memory, const Numbers& gradient, float scale, float decay) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  Numbers after;
  for (std::size_t i = 0; i < memory.size(); ++i) {
    const volatile float decayed = decay * memory[i];
    const volatile float added = scale * gradient[i];
    const volatile float sum = decayed + added;
    const volatile float difference = sum - added;
    const float old = difference / decay;
    after.push_back(std::isfinite(sum) ? std::min(std::max(old, -kLargest), kLargest) : memory[i]);
  }
  return after;
}

class TakenBack : public ::testing::TestWithParam<std::string> {};

TEST_P(TakenBack, GivesTheSameBitsHoweverFarTheStepCame) {
  struct Factors {
    const char* feedback;
    float lr;
    float unscale;
    float scale;
    float decay;
  };
  const std::size_t n = kSlowBuild ? 70'001 : 140'001;
  const Layout layout = layout_of({5, 30'000, 3, n - 30'015, 7});
  const Numbers memory = reference::input("spread_scales").make(n, 0, 3);
  for (const Factors& factors :
       {Factors{"ef", 1, 1, 1, 1}, {"ef:scale=lr,decay=0.9", 0.3F, 1, 0.3F, 0.9F}, {"ef", 1, 0.125F, 0.125F, 1}}) {
    for (const std::size_t bad : kSlowBuild ? std::vector{std::size_t{1}, n / 3, n - 1}
                                            : std::vector{std::size_t{0}, std::size_t{1}, n / 3, n - 8, n - 1}) {
      Numbers gradient = reference::input("normal").make(n, 1, 3);
      gradient[bad] = bad % 2 == 0 ? NAN : std::numeric_limits<float>::infinity();
      const Numbers expected = round_trip(memory, gradient, factors.scale, factors.decay);
      for (const Machine& machine : machines()) {
        for (const Scope scope : {Scope::model, Scope::layer}) {
          const AtLevel level(machine.simd);
          Sifter sifter(GetParam(), factors.feedback,
                        {.layout = layout, .scope = scope, .pool = pool_of(machine.threads)});
          sifter.write_memory(memory);
          SparseVector sent;
          ASSERT_THROW(sifter.sift(gradient, sent, factors.lr, factors.unscale), BadGradient);
          ASSERT_TRUE(same_bits(expected, sifter.memory())) << "bad at " << bad << ", " << factors.feedback;

          Numbers good = gradient;
          good[bad] = 1;
          sifter.write_memory(memory);
          sifter.sift(good, sent, factors.lr, factors.unscale);
          sifter.undo(good, sent, factors.lr, factors.unscale);
          ASSERT_TRUE(same_bits(round_trip(memory, good, factors.scale, factors.decay), sifter.memory()));
        }
      }
    }
  }
}

// The quotient may be too large where the old number was nearly the largest.
TEST_P(TakenBack, StaysFinite) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  Sifter sifter(GetParam(), "ef:decay=0.3", {.layout = 3});
  const Numbers memory = {kLargest, -kLargest, 1};
  for (float factor = 0.5F; factor < 0.69F; factor += 0.001F) {
    sifter.write_memory(memory);
    const Numbers gradient = {factor * kLargest, -factor * kLargest, 0};
    SparseVector sent;
    sifter.sift(gradient, sent);
    sifter.undo(gradient, sent);
    const Numbers after = sifter.memory();
    for (const float x : after) ASSERT_TRUE(std::isfinite(x)) << factor;
    ASSERT_TRUE(same_bits(round_trip(memory, gradient, 1, 0.3F), after));
  }
}

// Everything that may follow a sift is taken back with it.
TEST_P(TakenBack, IncludesWhatFollowedTheSift) {
  const std::size_t n = 3000;
  const std::vector<Numbers> gradients = reference::sequence(reference::input("exact"), n, 12, 4);
  for (const char* feedback : {"ef", "momentum:m=0.5", "none"}) {
    SCOPED_TRACE(feedback);
    Sifter sifter(GetParam(), feedback, {.layout = n, .ranks = 3});
    Sifter straight(GetParam(), feedback, {.layout = n, .ranks = 3});
    SparseVector sent;
    SparseVector expected;
    for (std::size_t t = 0; t < gradients.size(); ++t) {
      SCOPED_TRACE(t);
      const Numbers mistake = reference::exact_numbers(n, 50 + static_cast<int>(t), 6);
      const Numbers before = sifter.memory();
      sifter.sift(mistake, sent);
      if (t % 3 == 1) sifter.flush(sent);
      const SparseVector as_sifted = sent;
      Numbers received = sent.values;
      for (float& x : received) x *= 0.5F;
      sifter.keep_rounding_loss(sent, received);
      sent.values = received;
      sifter.observe(sent, made_up_update(sent, {.ranks = 3}));
      if (sifter.is_voting()) sifter.set_vote(0.25F);
      ASSERT_TRUE(sifter.can_undo());
      sifter.undo(mistake, as_sifted);
      ASSERT_FALSE(sifter.can_undo());
      EXPECT_EQ(sifter.memory(), before);

      sifter.sift(gradients[t], sent);
      straight.sift(gradients[t], expected);
      ASSERT_TRUE(same_bits(expected, sent));
      ASSERT_EQ(sifter.memory(), straight.memory());
      EXPECT_EQ(sifter.stats().total_error, straight.stats().total_error);
      sifter.observe(sent, made_up_update(sent, {.ranks = 3}));
      straight.observe(sent, made_up_update(sent, {.ranks = 3}));
      EXPECT_EQ(sifter.is_voting(), straight.is_voting());
      if (sifter.is_voting()) {
        sifter.set_vote(1.5F);
        straight.set_vote(1.5F);
      }
    }
  }
}

// A sum of sparse vectors enters the memory where it has entries; taking it back is exact.
TEST_P(TakenBack, SparseSumsExactly) {
  const std::size_t n = 5000;
  Sifter sifter(GetParam(), "ef", {.layout = n, .role = Role::server});
  Sifter dense(GetParam(), "ef", {.layout = n, .role = Role::server});
  const Numbers start = reference::input("spread_scales").make(n, 0, 3);
  sifter.write_memory(start);
  dense.write_memory(start);
  SparseVector sent;
  SparseVector expected;
  for (std::size_t t = 0; t < 8; ++t) {
    SCOPED_TRACE(t);
    const Numbers numbers = reference::input("normal").make(n, static_cast<int>(t), 6);
    SparseVector sum;
    sum.clear(n);
    Numbers gradient(n);
    for (std::uint32_t i = static_cast<std::uint32_t>(t); i < n; i += 7) {
      sum.indices.push_back(i);
      sum.values.push_back(numbers[i]);
      gradient[i] = numbers[i];
    }
    if (t == 5) {  // a full sum
      sum.indices.clear();
      sum.values = gradient = numbers;
    }
    const Numbers before = sifter.memory();
    sifter.sift(sum, sent);
    sifter.undo(sum, sent);
    ASSERT_TRUE(same_bits(before, sifter.memory()));

    SparseVector too_large = sum;
    too_large.values[1] = std::numeric_limits<float>::infinity();
    try {
      sifter.sift(too_large, sent);
      FAIL();
    } catch (const BadGradient& error) {
      EXPECT_EQ(error.index(), sum.index(1));
    }
    ASSERT_TRUE(same_bits(before, sifter.memory()));

    sifter.sift(sum, sent);
    dense.sift(gradient, expected);
    ASSERT_TRUE(same_bits(expected, sent));
    ASSERT_EQ(dense.memory(), sifter.memory());
    EXPECT_EQ(dense.stats().memory_norm2, sifter.stats().memory_norm2);
  }
  Sifter decaying(GetParam(), "ef:decay=0.5", {.layout = n});
  EXPECT_THROW(decaying.sift(sent, expected), UsageError);
}

INSTANTIATE_TEST_SUITE_P(Specs, TakenBack, ::testing::ValuesIn(example_specs()), spec_as_name);

}  // namespace
}  // namespace sparsewire::take_back_test
