// Tests of every promise of sparsifier.h, for any registered sparsifier, with GoogleTest. In one source file of your
// test program:
//
//   #include <sparsewire/testing/sparsifier_conformance.h>
//
//   const sparsewire::Registration mine = sparsewire::register_sparsifier(...);
//   namespace sparsewire::conformance {
//   INSTANTIATE_TEST_SUITE_P(Mine, SparsifierConformance, testing::Values(SparsifierCase{.spec = "mine:ratio=0.1"}),
//                            name_of_case);
//   }
//
// and link it with GTest::gtest_main. docs/guides/extending.md shows a whole one. The tests use the sparsifier through
// a Sifter, as workers and servers do. Nothing else of sparsewire includes this header.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "sparsewire/errors.h"
#include "sparsewire/pool.h"
#include "sparsewire/sifter.h"

namespace sparsewire::conformance {

struct SparsifierCase {
  std::string spec = {};
  // The least number of entries that a model must have for this spec: for `k=64` perhaps 64.
  std::size_t smallest_model = 0;
  // It may send entries that are zero, as `dense` does. One from outside the library cannot.
  bool sends_zeros = false;
};

inline std::ostream& operator<<(std::ostream& out, const SparsifierCase& tested) { return out << tested.spec; }
// For INSTANTIATE_TEST_SUITE_P: topk:ratio=0.01 -> topk_ratio_0_01
inline std::string name_of_case(const testing::TestParamInfo<SparsifierCase>& info) {
  std::string name = info.param.spec;
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

// ---- Gradients ----

// Looks random; the same for the same arguments.
inline std::uint64_t random_bits(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t bits = seed * 0x9E3779B97F4A7C15U + index * 0xD1B54A32D192ED03U + 1;
  bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9U;
  bits = (bits ^ bits >> 27) * 0x94D049BB133111EBU;
  return bits ^ bits >> 31;
}

// Quarters from -16 to 16 and many zeros: they add without rounding, cancel, and have equal magnitudes.
inline std::vector<float> exact_numbers(std::size_t n, std::uint64_t seed) {
  std::vector<float> numbers(n);
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t bits = random_bits(seed, i);
    numbers[i] = bits % 3 == 0 ? 0.0F : static_cast<float>(static_cast<int>(bits >> 8 & 127) - 64) / 4;
  }
  return numbers;
}

// Of many magnitudes, with all bits in use; none is zero.
inline std::vector<float> rough_numbers(std::size_t n, std::uint64_t seed) {
  std::vector<float> numbers(n);
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t bits = random_bits(seed, i);
    const auto mantissa = static_cast<float>((bits >> 40) + 1);
    numbers[i] = std::ldexp((bits & 1) != 0 ? mantissa : -mantissa, static_cast<int>(bits >> 8 & 31) - 32);
  }
  return numbers;
}

// Each kind of gradient, by number: also all zeros, all equal, and one entry only.
inline constexpr std::uint64_t kKinds = 5;
inline std::vector<float> numbers_of_kind(std::uint64_t kind, std::size_t n, std::uint64_t seed) {
  if (kind == 0) return exact_numbers(n, seed);
  if (kind == 1) return rough_numbers(n, seed);
  std::vector<float> numbers(n, kind == 2 ? -0.5F : 0.0F);
  if (kind == 4 && n > 0) numbers[seed % n] = 3;
  return numbers;
}

// ---- Models and steps ----

inline constexpr std::uint64_t kSteps = 5;
inline constexpr std::uint64_t kFirstStep = 3;

inline SifterContext context_of(Layout layout) {
  SifterContext context{.layout = std::move(layout)};
  context.rank = 1;
  context.ranks = 3;
  context.weight = 0.25;
  context.seed = 77;
  context.first_step = kFirstStep;
  return context;
}

inline Layout layers() {
  return Layout(std::vector<TensorRange>{{"first", 300}, {"empty", 0}, {"one", 1}, {"last", 700}});
}

// Models of several sizes, and one whose ratio applies to each layer.
inline std::vector<SifterContext> models(const SparsifierCase& tested) {
  std::vector<SifterContext> all;
  for (const std::size_t n : {0U, 1U, 2U, 17U, 1000U, 4099U}) {
    if (n >= tested.smallest_model) all.push_back(context_of(n));
  }
  if (layers().dim() >= tested.smallest_model) {
    all.push_back(context_of(layers()));
    all.back().scope = Scope::layer;
  }
  return all;
}

inline std::string describe(const SifterContext& context) {
  return std::to_string(context.layout.dim()) + (context.scope == Scope::layer ? " entries in layers" : " entries");
}

// What follows a sift in a worker: the sparsifier learns the update, and the ranks agree on a number.
inline void finish_step(Sifter& sifter, const SparseVector& sent) {
  std::vector<float> update(sent.size());
  for (std::size_t i = 0; i < sent.size(); ++i) update[i] = i % 3 == 0 ? 0.0F : sent.values[i] / 2;
  sifter.observe(sent, update);
  if (!sifter.is_voting()) return;
  if (const std::optional<float> vote = sifter.vote()) sifter.set_vote(*vote);
}

inline SparseVector take_step(Sifter& sifter, const Gradient& gradient) {
  SparseVector sent;
  sifter.sift(gradient, sent);
  finish_step(sifter, sent);
  return sent;
}

inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
  });
}

// The next step of both sends and keeps the same. The gradients are the same numbers.
inline void expect_same_step(Sifter& sifter, const Gradient& gradient, Sifter& other, const Gradient& gradient_of_other,
                             const std::string& what) {
  const SparseVector sent = take_step(sifter, gradient);
  ASSERT_TRUE(sent == take_step(other, gradient_of_other)) << what << ": other entries are sent";
  ASSERT_TRUE(same_bits(sifter.memory(), other.memory())) << what << ": the memory differs";
}

inline void expect_same_steps(Sifter& sifter, Sifter& other, std::uint64_t seed, const std::string& what) {
  for (std::uint64_t t = 0; t < kSteps; ++t) {
    const std::vector<float> gradient = exact_numbers(sifter.layout().dim(), seed + t);
    SCOPED_TRACE(std::to_string(t + 1) + " steps later");
    ASSERT_NO_FATAL_FAILURE(expect_same_step(sifter, gradient, other, gradient, what));
  }
}

// ---- The promises ----

inline void is_listed_and_its_example_works(const SparsifierCase& tested) {
  const std::string name = Spec(tested.spec).name();
  const std::vector<SparsifierInfo> all = sparsifiers();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const SparsifierInfo& info) { return info.name == name; });
  ASSERT_TRUE(found != all.end()) << "no sparsifier '" << name << "' is registered";
  EXPECT_FALSE(found->summary.empty()) << "SparsifierInfo::summary is empty";
  EXPECT_EQ(Spec(found->example).name(), name) << "SparsifierInfo::example is a spec of another sparsifier";
  take_step(*std::make_unique<Sifter>(found->example, "ef", context_of(4099)), rough_numbers(4099, 1));
}

// Also: an entry that is zero is not sent.
inline void sends_ascending_indices(const SparsifierCase& tested) {
  for (const SifterContext& context : models(tested)) {
    const std::size_t n = context.layout.dim();
    for (std::uint64_t kind = 0; kind < kKinds; ++kind) {
      SCOPED_TRACE(describe(context) + ", gradients of kind " + std::to_string(kind));
      Sifter sifter(tested.spec, "ef", context);
      for (std::uint64_t t = 0; t < kSteps; ++t) {
        const SparseVector sent = take_step(sifter, numbers_of_kind(kind, n, t));
        ASSERT_EQ(sent.dim, n);
        ASSERT_TRUE(sent.is_valid()) << "indices must ascend and be below " << n;
        EXPECT_EQ(sifter.stats().entries, sent.size());
        EXPECT_EQ(sifter.step(), kFirstStep + t + 1);
        if (tested.sends_zeros) continue;
        ASSERT_EQ(std::count(sent.values.begin(), sent.values.end(), 0.0F), 0) << "entries that are zero were sent";
      }
    }
  }
}

// memory, velocity and gradient before a step -> what the step adds up, entry by entry.
struct Sums {
  std::vector<float> accumulated;
  std::vector<float> velocity;
};
inline Sums sums_of(const Sifter& sifter, std::span<const float> gradient, float factor) {
  const Feedback& feedback = sifter.feedback();
  Sums sums{.accumulated = sifter.memory(), .velocity = sifter.velocity()};
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    float addend = factor * gradient[i];
    if (feedback.kind == Feedback::Kind::momentum) {
      addend += feedback.momentum * sums.velocity[i];
      sums.velocity[i] = addend;
    }
    sums.accumulated[i] = feedback.decay * sums.accumulated[i] + addend;
  }
  return sums;
}

// An entry is either sent or kept, with the same value.
inline void expect_sent_or_kept(const Sifter& sifter, const Sums& sums, const SparseVector& sent) {
  const bool drops = sifter.feedback().kind == Feedback::Kind::none;
  const bool has_velocity = sifter.feedback().kind == Feedback::Kind::momentum;
  const std::vector<float> memory = sifter.memory();
  const std::vector<float> velocity = sifter.velocity();
  std::size_t next = 0;
  for (std::size_t i = 0; i < memory.size(); ++i) {
    const bool is_sent = next < sent.size() && sent.index(next) == i;
    if (is_sent) {
      ASSERT_EQ(sent.values[next++], sums.accumulated[i]) << "sent at " << i;
    }
    ASSERT_EQ(memory[i], is_sent || drops ? 0.0F : sums.accumulated[i]) << "in the memory at " << i;
    if (has_velocity) {
      ASSERT_EQ(velocity[i], is_sent ? 0.0F : sums.velocity[i]) << "velocity at " << i;
    }
  }
  EXPECT_EQ(next, sent.size());
}

inline void loses_nothing(const SparsifierCase& tested) {
  constexpr float kLr = 0.25F;
  constexpr float kUnscale = 0.5F;
  for (const SifterContext& context : models(tested)) {
    for (const char* feedback : {"ef", "ef:decay=0.5", "ef:scale=lr", "none", "momentum:m=0.5"}) {
      SCOPED_TRACE(describe(context) + ", feedback " + feedback);
      Sifter sifter(tested.spec, feedback, context);
      SparseVector sent;
      for (std::uint64_t t = 0; t < kSteps; ++t) {
        const std::vector<float> gradient = exact_numbers(context.layout.dim(), t);
        const Sums sums = sums_of(sifter, gradient, sifter.feedback().scale_by_lr ? kUnscale * kLr : kUnscale);
        sifter.sift(gradient, sent, kLr, kUnscale);
        ASSERT_NO_FATAL_FAILURE(expect_sent_or_kept(sifter, sums, sent));
        finish_step(sifter, sent);
      }
    }
    SCOPED_TRACE(describe(context) + ", with rounding");
    Sifter sifter(tested.spec, "ef", context);
    for (std::uint64_t t = 0; t < kSteps; ++t) {
      const std::vector<float> gradient = rough_numbers(context.layout.dim(), t);
      const Sums sums = sums_of(sifter, gradient, 1);
      const SparseVector sent = take_step(sifter, gradient);
      ASSERT_NO_FATAL_FAILURE(expect_sent_or_kept(sifter, sums, sent));
    }
  }
}

// Two that get the same do the same, whatever others were made in between.
inline void is_deterministic(const SparsifierCase& tested) {
  for (const SifterContext& context : models(tested)) {
    SCOPED_TRACE(describe(context));
    Sifter sifter(tested.spec, "ef", context);
    Sifter second(tested.spec, "ef", context);
    take_step(*std::make_unique<Sifter>(tested.spec, "ef", context), exact_numbers(context.layout.dim(), 99));
    ASSERT_NO_FATAL_FAILURE(expect_same_steps(sifter, second, 1, "two with the same gradients"));
    EXPECT_EQ(sifter.save(), second.save());
  }
}

// Ranks that are threads use one each, at the same time; each has several threads itself.
inline void works_on_several_threads(const SparsifierCase& tested) {
  constexpr int kRanks = 3;
  constexpr std::size_t kEntries = 70'001;  // so many that a Pool is used
  const auto run = [&](int rank, int threads, std::vector<SparseVector>& all) {
    Pool pool(threads);
    SifterContext context = context_of(std::max(kEntries, tested.smallest_model));
    context.rank = rank;
    context.pool = &pool;
    Sifter sifter(tested.spec, "ef", context);
    for (std::uint64_t t = 0; t < 3; ++t) {
      const std::uint64_t seed = 10 * t + static_cast<std::uint64_t>(rank);
      all.push_back(take_step(sifter, rough_numbers(context.layout.dim(), seed)));
    }
  };
  std::array<std::vector<SparseVector>, kRanks> at_the_same_time;
  std::array<std::exception_ptr, kRanks> errors;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      try {
        run(rank, 2, at_the_same_time[static_cast<std::size_t>(rank)]);
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    std::vector<SparseVector> one_after_the_other;
    run(rank, 1, one_after_the_other);
    EXPECT_TRUE(at_the_same_time[static_cast<std::size_t>(rank)] == one_after_the_other)
        << "other entries are sent when ranks run at the same time";
  }
}

// With numbers that add without rounding: no bit tells that there was another step.
inline void takes_a_step_back(const SparsifierCase& tested) {
  for (const SifterContext& context : models(tested)) {
    const std::size_t n = context.layout.dim();
    for (const char* feedback : {"ef", "ef:scale=lr", "none", "momentum:m=0.5"}) {
      SCOPED_TRACE(describe(context) + ", feedback " + feedback);
      Sifter straight(tested.spec, feedback, context);
      Sifter sifter(tested.spec, feedback, context);
      SparseVector sent;
      for (std::uint64_t t = 0; t < kSteps; ++t) {
        const std::vector<std::byte> before = sifter.save();
        const std::vector<float> mistake = exact_numbers(n, 100 + t);
        for (const char* what : {"sift()", "sift() and observe()", "sift() and flush()"}) {
          sifter.sift(mistake, sent, 0.5F);
          if (what == std::string_view("sift() and observe()")) finish_step(sifter, sent);
          if (what == std::string_view("sift() and flush()")) sifter.flush(sent);
          sifter.undo(mistake, sent, 0.5F);
          ASSERT_EQ(sifter.step(), kFirstStep + t);
          ASSERT_TRUE(sifter.save() == before) << "undo() after " << what << " left a trace in the state";
        }
        const std::vector<float> gradient = exact_numbers(n, t);
        ASSERT_NO_FATAL_FAILURE(
            expect_same_step(sifter, gradient, straight, gradient, "after a step that was taken back"));
      }
    }
  }
}

// Any numbers come back up to rounding (errors.h).
inline void takes_a_step_back_to_rounding(const SparsifierCase& tested) {
  for (const SifterContext& context : models(tested)) {
    SCOPED_TRACE(describe(context));
    Sifter sifter(tested.spec, "ef", context);
    SparseVector sent;
    for (std::uint64_t t = 0; t < kSteps; ++t) {
      take_step(sifter, rough_numbers(context.layout.dim(), t));
      const std::vector<float> mistake = rough_numbers(context.layout.dim(), 100 + t);
      const std::vector<float> before = sifter.memory();
      sifter.sift(mistake, sent);
      sifter.undo(mistake, sent);
      const std::vector<float> after = sifter.memory();
      for (std::size_t i = 0; i < before.size(); ++i) {
        ASSERT_NEAR(after[i], before[i], 4e-7F * (std::abs(before[i]) + std::abs(mistake[i]))) << "at " << i;
      }
    }
  }
}

// One that was saved and loaded does what the other does.
inline void goes_on_after_save_and_load(const SparsifierCase& tested) {
  for (const SifterContext& context : models(tested)) {
    const std::size_t n = context.layout.dim();
    for (std::uint64_t steps = 0; steps < kSteps; ++steps) {
      SCOPED_TRACE(describe(context) + ", saved after " + std::to_string(steps) + " steps");
      Sifter sifter(tested.spec, "ef", context);
      for (std::uint64_t t = 0; t < steps; ++t) take_step(sifter, exact_numbers(n, t));
      const std::vector<std::byte> saved = sifter.save();
      Sifter loaded(tested.spec, "ef", context);
      for (std::uint64_t t = 0; t < 2; ++t) take_step(loaded, exact_numbers(n, 50 + t));  // load() replaces all of it
      loaded.load(saved);
      EXPECT_EQ(loaded.step(), sifter.step());
      ASSERT_TRUE(loaded.save() == saved) << "saved again, the state is another one";
      ASSERT_NO_FATAL_FAILURE(expect_same_steps(sifter, loaded, steps, "after save() and load()"));
      ASSERT_TRUE(loaded.save() == sifter.save());
    }
  }
}

// A state is loaded where the tensors are in another order, some are missing, or all entries are others (inherit).
inline void goes_on_with_other_tensors(const SparsifierCase& tested) {
  Layout other_order(std::vector<TensorRange>{{"last", 700}, {"first", 300}});
  Layout fewer(std::vector<TensorRange>{{"one", 1}, {"first", 300}});
  for (const Layout& layout : {other_order, fewer}) {
    if (layout.dim() < tested.smallest_model) continue;
    SCOPED_TRACE(std::to_string(layout.dim()) + " of " + std::to_string(layers().dim()) + " entries");
    Sifter sifter(tested.spec, "ef", context_of(layers()));
    for (std::uint64_t t = 0; t < kSteps; ++t) take_step(sifter, rough_numbers(layers().dim(), t));
    Sifter loaded(tested.spec, "ef", context_of(layout));
    loaded.load(sifter.save());
    for (const TensorRange& tensor : layout.tensors()) {
      std::vector<float> before(tensor.size);
      std::vector<float> after(tensor.size);
      sifter.read_memory(tensor.name, before);
      loaded.read_memory(tensor.name, after);
      EXPECT_TRUE(same_bits(before, after)) << tensor.name;
    }
    Sifter inherited(tested.spec, "ef", context_of(layout));
    inherited.inherit(sifter.save());
    for (std::uint64_t t = 0; t < kSteps; ++t) {
      const std::vector<float> gradient = rough_numbers(layout.dim(), 50 + t);
      EXPECT_TRUE(take_step(loaded, gradient).is_valid());
      EXPECT_TRUE(take_step(inherited, gradient).is_valid());
    }
  }
}

// SparsifierTraits and expected_entries() say what is so.
inline void has_the_traits_it_names(const SparsifierCase& tested) {
  for (const SifterContext& context : models(tested)) {
    SCOPED_TRACE(describe(context));
    const std::size_t n = context.layout.dim();
    Sifter sifter(tested.spec, "ef", context);
    Sifter other(tested.spec, "ef", context);
    const SparsifierTraits traits = sifter.traits();
    for (std::uint64_t t = 0; t < kSteps; ++t) {
      const double expected = sifter.expected_entries();
      EXPECT_TRUE(expected >= 0 && expected <= static_cast<double>(n)) << "expected_entries() returned " << expected;
      const SparseVector sent = take_step(sifter, rough_numbers(n, t));
      const SparseVector sent_by_other = take_step(other, rough_numbers(n, 100 + t));
      if (!traits.entries_vary) {
        EXPECT_EQ(sent.size(), sent_by_other.size()) << "the number of entries depends on the gradient, but "
                                                        "traits().entries_vary is false";
      }
      EXPECT_TRUE(sifter.traits().observes == traits.observes && sifter.traits().remembers == traits.remembers &&
                  sifter.traits().entries_vary == traits.entries_vary)
          << "traits() returns something else after a step";
      if (traits.remembers) continue;
      SifterContext later = context;
      later.first_step = sifter.step();
      Sifter copy(tested.spec, "ef", later);
      copy.write_memory(sifter.memory());
      Sifter original(tested.spec, "ef", context);
      original.load(sifter.save());
      ASSERT_NO_FATAL_FAILURE(expect_same_steps(original, copy, 200 + t,
                                                "traits().remembers is false, but with the same memory and step "
                                                "number"));
    }
  }
}

// A bad gradient is refused, and the next step is as if it had not been.
inline void refuses_bad_gradients(const SparsifierCase& tested) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const SifterContext& context : models(tested)) {
    const std::size_t n = context.layout.dim();
    if (n == 0) continue;
    for (const char* feedback : {"ef", "none", "momentum:m=0.5"}) {
      SCOPED_TRACE(describe(context) + ", feedback " + feedback);
      Sifter straight(tested.spec, feedback, context);
      Sifter sifter(tested.spec, feedback, context);
      SparseVector sent;
      for (std::uint64_t t = 0; t < kSteps; ++t) {
        const std::vector<std::byte> before = sifter.save();
        for (const std::size_t index : {std::size_t{0}, n / 2, n - 1}) {
          std::vector<float> bad = exact_numbers(n, 100 + t);
          bad[index] = std::array{std::nanf(""), kInfinity, -kInfinity}[t % 3];
          try {
            sifter.sift(bad, sent);
            FAIL() << bad[index] << " was accepted";
          } catch (const BadGradient& error) {
            EXPECT_EQ(error.index(), index);
            EXPECT_EQ(error.step(), kFirstStep + t);
          }
          EXPECT_EQ(sent.size(), 0U);
          ASSERT_TRUE(sifter.save() == before) << "a bad gradient left a trace in the state";
        }
        const std::vector<float> gradient = exact_numbers(n, t);
        ASSERT_NO_FATAL_FAILURE(expect_same_step(sifter, gradient, straight, gradient, "after a bad gradient"));
      }
    }
  }
}

// bf16 and f16 are used like the same numbers in f32.
inline void takes_half_precision(const SparsifierCase& tested) {
  for (const SifterContext& context : models(tested)) {
    const std::size_t n = context.layout.dim();
    for (const NumberType type : {NumberType::bf16, NumberType::f16}) {
      SCOPED_TRACE(describe(context) + (type == NumberType::bf16 ? ", bf16" : ", f16"));
      Sifter sifter(tested.spec, "ef", context);
      Sifter reference(tested.spec, "ef", context);
      for (std::uint64_t t = 0; t < kSteps; ++t) {
        // Random signs, mantissas of 7 or 10 bits, exponents from 2^-8 to 2^7.
        const int mantissa_bits = type == NumberType::bf16 ? 7 : 10;
        const int bias = type == NumberType::bf16 ? 127 : 15;
        std::vector<std::uint16_t> patterns(n);
        std::vector<float> numbers(n);
        for (std::size_t i = 0; i < n; ++i) {
          const std::uint64_t bits = random_bits(t, i);
          const auto mantissa = static_cast<std::uint32_t>(bits >> 8) & ((1U << mantissa_bits) - 1);
          const int exponent = static_cast<int>(bits >> 40 & 15) - 8;
          const auto biased = static_cast<std::uint32_t>(exponent + bias);
          const bool negative = (bits & 1) != 0;
          patterns[i] = static_cast<std::uint16_t>((negative ? 0x8000U : 0U) | biased << mantissa_bits | mantissa);
          const auto significand = static_cast<float>((1U << mantissa_bits) + mantissa);
          numbers[i] = std::ldexp(negative ? -significand : significand, exponent - mantissa_bits);
        }
        ASSERT_NO_FATAL_FAILURE(
            expect_same_step(sifter, {patterns.data(), type, n}, reference, numbers, "compared with f32"));
      }
    }
  }
}

// observe() may follow a step, or not; with an update that is zero, and when nothing was sent.
inline void may_be_told_the_update(const SparsifierCase& tested) {
  for (const SifterContext& context : models(tested)) {
    SCOPED_TRACE(describe(context));
    Sifter sifter(tested.spec, "ef", context);
    SparseVector sent;
    for (std::uint64_t t = 0; t < 2 * kSteps; ++t) {
      sifter.sift(numbers_of_kind(t % kKinds, context.layout.dim(), t), sent);
      ASSERT_TRUE(sent.is_valid());
      if (t % 3 == 0) continue;
      sifter.observe(sent, std::vector<float>(sent.size(), t % 3 == 1 ? 0.0F : -1.5F));
    }
  }
}

// All ranks vote in the same steps, whatever their gradients are; the votes are finite.
inline void votes_in_the_same_step_on_all_ranks(const SparsifierCase& tested) {
  for (const SifterContext& context : models(tested)) {
    SCOPED_TRACE(describe(context));
    std::vector<Sifter> ranks;
    for (int rank = 0; rank < context.ranks; ++rank) {
      SifterContext own = context;
      own.rank = rank;
      ranks.emplace_back(tested.spec, "ef", own);
    }
    for (std::uint64_t t = 0; t < 2 * kSteps; ++t) {
      std::vector<SparseVector> sent(ranks.size());
      for (std::size_t r = 0; r < ranks.size(); ++r) {
        ranks[r].sift(numbers_of_kind((t + r) % kKinds, context.layout.dim(), 10 * t + r), sent[r]);
        EXPECT_EQ(ranks[r].is_voting(), ranks[0].is_voting()) << "rank " << r << " and rank 0, step " << t;
        const std::optional<float> vote = ranks[r].vote();
        EXPECT_TRUE(!vote || std::isfinite(*vote)) << "vote() returned " << *vote;
      }
      for (std::size_t r = 0; r < ranks.size(); ++r) finish_step(ranks[r], sent[r]);
    }
  }
}

// As the downlink of a server it gets sums that are sparse: it sends what it would send of the same sums in full, and
// they are taken back exactly.
inline void serves_as_downlink(const SparsifierCase& tested) {
  for (SifterContext context : models(tested)) {
    context.role = Role::server;
    SCOPED_TRACE(describe(context));
    const std::size_t n = context.layout.dim();
    Sifter sifter(tested.spec, "ef", context);
    Sifter reference(tested.spec, "ef", context);
    SparseVector sent;
    for (std::uint64_t t = 0; t < kSteps; ++t) {
      SparseVector sum;
      sum.clear(n);
      std::vector<float> full(n);
      const std::vector<float> numbers = rough_numbers(n, t);
      for (std::size_t i = 0; i < n; ++i) {
        if (random_bits(1000 + t, i) % 4 != 0) continue;
        sum.indices.push_back(static_cast<std::uint32_t>(i));
        sum.values.push_back(numbers[i]);
        full[i] = numbers[i];
      }
      const std::vector<std::byte> before = sifter.save();
      sifter.sift(sum, sent);
      sifter.undo(sum, sent);
      ASSERT_TRUE(sifter.save() == before) << "a sparse sum that was taken back left a trace";
      sifter.sift(sum, sent);
      finish_step(sifter, sent);
      ASSERT_TRUE(sent == take_step(reference, full)) << "of a sparse sum, other entries are sent";
      ASSERT_EQ(sifter.memory(), reference.memory());
    }
  }
}

// ---- The tests ----

using Promise = void (*)(const SparsifierCase& tested);

// An exception is a failure too: a Sifter throws a UsageError if a sparsifier chose wrongly.
inline void check(Promise promise, const SparsifierCase& tested) {
  try {
    promise(tested);
  } catch (const std::exception& error) {
    ADD_FAILURE() << tested.spec << " threw: " << error.what();
  }
}

class SparsifierConformance : public testing::TestWithParam<SparsifierCase> {};

TEST_P(SparsifierConformance, IsListedAndItsExampleWorks) { check(is_listed_and_its_example_works, GetParam()); }
TEST_P(SparsifierConformance, SendsAscendingIndices) { check(sends_ascending_indices, GetParam()); }
TEST_P(SparsifierConformance, LosesNothing) { check(loses_nothing, GetParam()); }
TEST_P(SparsifierConformance, IsDeterministic) { check(is_deterministic, GetParam()); }
TEST_P(SparsifierConformance, WorksOnSeveralThreads) { check(works_on_several_threads, GetParam()); }
TEST_P(SparsifierConformance, TakesAStepBack) { check(takes_a_step_back, GetParam()); }
TEST_P(SparsifierConformance, TakesAStepBackToRounding) { check(takes_a_step_back_to_rounding, GetParam()); }
TEST_P(SparsifierConformance, GoesOnAfterSaveAndLoad) { check(goes_on_after_save_and_load, GetParam()); }
TEST_P(SparsifierConformance, GoesOnWithOtherTensors) { check(goes_on_with_other_tensors, GetParam()); }
TEST_P(SparsifierConformance, HasTheTraitsItNames) { check(has_the_traits_it_names, GetParam()); }
TEST_P(SparsifierConformance, RefusesBadGradients) { check(refuses_bad_gradients, GetParam()); }
TEST_P(SparsifierConformance, TakesHalfPrecision) { check(takes_half_precision, GetParam()); }
TEST_P(SparsifierConformance, MayBeToldTheUpdate) { check(may_be_told_the_update, GetParam()); }
TEST_P(SparsifierConformance, VotesInTheSameStepOnAllRanks) { check(votes_in_the_same_step_on_all_ranks, GetParam()); }
TEST_P(SparsifierConformance, ServesAsDownlink) { check(serves_as_downlink, GetParam()); }

}  // namespace sparsewire::conformance
