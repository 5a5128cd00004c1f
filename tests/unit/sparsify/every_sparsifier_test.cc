// Every sparsifier agrees with the reference on every input, and gives the same bits at every SIMD level and on any
// number of threads.
#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "sparsewire/errors.h"
#include "sparsewire/sifter.h"
#include "unit/bare_sparsifier.h"
#include "unit/specs.h"
#include "unit/walk.h"

namespace sparsewire::every_sparsifier_test {
namespace {

constexpr int kSteps = 4;

class EverySparsifier : public ::testing::TestWithParam<std::string> {
 protected:
  // A context without default values.
  static SifterContext context_of(Layout layout, Scope scope = Scope::model) {
    return {.layout = std::move(layout),
            .scope = scope,
            .rank = 3,
            .ranks = 5,
            .weight = 0.25,
            .seed = 0x9876543210ABCDEFU};
  }

  static bool has_dense_below() { return GetParam() != "dense"; }
};

INSTANTIATE_TEST_SUITE_P(Specs, EverySparsifier, ::testing::ValuesIn(every_spec()), spec_as_name);

TEST(Registry, NamesEverySparsifierOnceAndItsExampleWorks) {
  std::set<std::string> names;
  for (const SparsifierInfo& info : sparsifiers()) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_EQ(name_of(std::string(info.example)), info.name);
    EXPECT_FALSE(info.summary.empty());
    EXPECT_NE(make_bare(info.example, {.layout = 1000}), nullptr);
  }
  EXPECT_EQ(names, (std::set<std::string>{"topk", "randomk", "rtopk", "threshold", "regtopk", "dense"}));
}

TEST_P(EverySparsifier, AgreesWithTheReferenceOnEveryKindOfInput) {
  for (const reference::Input& input : reference::catalogue()) {
    for (const std::size_t n : {17U, 1025U, 4099U}) {
      ASSERT_NO_FATAL_FAILURE(check_input(GetParam(), input, context_of(n), kSteps));
    }
  }
}

TEST_P(EverySparsifier, AgreesWithTheReferenceAtEveryLength) {
  for (const std::size_t n : reference::small_lengths()) {
    ASSERT_NO_FATAL_FAILURE(check_input(GetParam(), reference::input("normal"), context_of(n), kSteps));
    ASSERT_NO_FATAL_FAILURE(check_input(GetParam(), reference::input("few_values"), context_of(n), kSteps));
  }
  for (const std::size_t n : reference::large_lengths()) {
    ASSERT_NO_FATAL_FAILURE(check_input(GetParam(), reference::input("normal"), context_of(n), 3));
  }
}

TEST_P(EverySparsifier, AgreesWithTheReferenceOnLargeGradientsOverManySteps) {
  const Machine best = machines().front();
  for (const char* kind : {"drifting", "signed_ties"}) {
    ASSERT_NO_FATAL_FAILURE(
        check_input(GetParam(), reference::input(kind), context_of(reference::kOddLarge), 5, {best, {best.simd, 3}}));
  }
}

TEST_P(EverySparsifier, WorksLayerByLayer) {
  const Layout layout = layout_of({5, 0, 1, 700, 64, 3000, 33, 0, 1});
  for (const char* kind : {"normal", "few_values", "zeros", "few_non_zeros"}) {
    ASSERT_NO_FATAL_FAILURE(check_input(GetParam(), reference::input(kind), context_of(layout, Scope::layer), kSteps));
  }
}

TEST_P(EverySparsifier, SendsSmallTensorsWhole) {
  if (!has_dense_below()) GTEST_SKIP() << "has no dense_below";
  const Layout layout = layout_of({5, 0, 700, 99, 64, 1, 3000, 100, 33});
  for (const Scope scope : {Scope::model, Scope::layer}) {
    SCOPED_TRACE(scope == Scope::model ? "model" : "layer");
    for (const char* kind : {"normal", "few_values"}) {
      for (const char* below : {"dense_below=0", "dense_below=100", "dense_below=5000"}) {
        ASSERT_NO_FATAL_FAILURE(
            check_input(with(GetParam(), below), reference::input(kind), context_of(layout, scope), kSteps));
      }
    }
  }
}

TEST_P(EverySparsifier, ScalesTheGradientAndDecaysTheMemory) {
  for (const char* kind : {"normal", "denormals", "exact", "near_the_largest"}) {
    SCOPED_TRACE(kind);
    const std::vector<Numbers> gradients = reference::sequence(reference::input(kind), 2051, kSteps, 7);
    for (const auto& [scale, decay] : {std::pair{0.1F, 1.0F}, {1.0F, 0.95F}, {0.3F, 0.5F}}) {
      SCOPED_TRACE(::testing::Message() << "scale " << scale << ", decay " << decay);
      ASSERT_NO_FATAL_FAILURE(check({GetParam(), context_of(2051), borrow(gradients, scale, decay)}));
    }
  }
}

TEST_P(EverySparsifier, TakesHalfPrecisionGradients) {
  for (const auto& [type, exponent_bits] : {std::pair{NumberType::f16, 5}, {NumberType::bf16, 8}}) {
    SCOPED_TRACE(exponent_bits);
    std::vector<std::vector<std::uint16_t>> patterns;
    std::vector<kernels::ScaledGradient> gradients;
    for (int step = 0; step < 3; ++step) patterns.push_back(reference::every_finite_half(exponent_bits, 3, step, 11));
    for (const auto& step : patterns) gradients.emplace_back(Gradient(step.data(), type, step.size()));
    ASSERT_NO_FATAL_FAILURE(check({GetParam(), context_of(patterns[0].size()), gradients}));
    for (kernels::ScaledGradient& gradient : gradients) gradient.scale = 0.3F;
    ASSERT_NO_FATAL_FAILURE(check({GetParam(), context_of(patterns[0].size()), gradients}, {machines().front()}));
  }
}

TEST_P(EverySparsifier, CountsStepsFromTheFirstStepOfItsContext) {
  SifterContext context = context_of(1000);
  context.role = Role::server;
  for (const std::uint64_t first : {std::uint64_t{1}, std::uint64_t{2}, (std::uint64_t{5} << 32U) + 7}) {
    SCOPED_TRACE(first);
    context.first_step = first;
    ASSERT_NO_FATAL_FAILURE(check_input(GetParam(), reference::input("normal"), context, kSteps));
  }
}

TEST_P(EverySparsifier, RefusesSizesThatDiffer) {
  Sifter sifter(GetParam(), "ef", context_of(100));
  SparseVector out;
  const Numbers numbers(101, 1.0F);
  for (const std::size_t size : {99U, 101U}) {
    EXPECT_THROW(sifter.sift({numbers.data(), NumberType::f32, size}, out), UsageError);
  }
  Gradient elsewhere(numbers.data(), NumberType::f32, 100);
  elsewhere.device.kind = Device::cuda;
  EXPECT_THROW(sifter.sift(elsewhere, out), UsageError);
  EXPECT_NO_THROW(sifter.sift({numbers.data(), NumberType::f32, 100}, out));
}

// With numbers that add without rounding, a step that is taken back leaves no trace: neither in the memory, nor in the
// step number, the records of a calibration or the last round of RegTop-k.
void expect_no_trace(const std::string& spec, const SifterContext& context) {
  const std::size_t n = context.layout.dim();
  SCOPED_TRACE(spec + ", n " + std::to_string(n));
  const std::vector<Numbers> gradients = reference::sequence(reference::input("exact"), n, kSteps, 5);
  const std::vector<Step> straight = record({spec, context, borrow(gradients)}, machines().front());

  const std::unique_ptr<BareSparsifier> sparsifier = make_bare(spec, context);
  Numbers memory(n);
  SparseVector out;
  const Numbers numbers = reference::exact_numbers(n, 99, 6);
  for (std::size_t t = 0; t < straight.size(); ++t) {
    SCOPED_TRACE("step " + std::to_string(t));
    const Numbers before = memory;
    const std::optional<float> vote = sparsifier->vote();
    for (const float scale : {0.0F, 0.5F, 8.0F}) {
      kernels::ScaledGradient mistake = Gradient(numbers);
      mistake.scale = scale;
      sparsifier->sift(mistake, memory, out);
      sparsifier->undo(mistake, memory, out);
      ASSERT_EQ(memory, before);
      ASSERT_EQ(sparsifier->vote(), vote);
    }
    sparsifier->sift(Gradient(gradients[t]), memory, out);
    ASSERT_TRUE(same_bits(straight[t].out, out));
    ASSERT_TRUE(same_bits(straight[t].memory, memory));
    sparsifier->observe(out, made_up_update(out, context));
  }
}

TEST_P(EverySparsifier, TakesTheLastStepBack) {
  for (const std::size_t n : {1U, 300U, 70001U}) ASSERT_NO_FATAL_FAILURE(expect_no_trace(GetParam(), context_of(n)));
  const SifterContext layers = context_of(layout_of({300, 5, 0, 700, 9, 1}), Scope::layer);
  ASSERT_NO_FATAL_FAILURE(expect_no_trace(GetParam(), layers));
  if (has_dense_below()) {
    ASSERT_NO_FATAL_FAILURE(expect_no_trace(with(GetParam(), "dense_below=10"), layers));
  }
}

void expect_back_to_rounding(const std::string& spec, const std::string& kind, std::size_t n, int threads) {
  SCOPED_TRACE(kind + ", n " + std::to_string(n) + ", threads " + std::to_string(threads));
  const std::vector<Numbers> gradients = reference::sequence(reference::input(kind), n, 2, 13);
  const std::unique_ptr<BareSparsifier> sparsifier = make_bare(spec, {.layout = n, .pool = pool_of(threads)});
  Numbers memory(n);
  SparseVector out;
  sparsifier->sift(Gradient(gradients[0]), memory, out);
  for (const auto& [scale, decay, bound] : {std::tuple{1.0F, 1.0F, 0x1p-22}, {0.3F, 0.9F, 0x1p-21}}) {
    kernels::ScaledGradient gradient = Gradient(gradients[1]);
    gradient.scale = scale;
    gradient.decay = decay;
    const Numbers before = memory;
    sparsifier->sift(gradient, memory, out);
    sparsifier->undo(gradient, memory, out);
    EXPECT_TRUE(same_to_rounding(before, memory, gradients[1], bound));
  }
}

TEST_P(EverySparsifier, TakesAStepBackToRounding) {
  for (const char* kind : {"normal", "spread_scales", "denormals", "near_the_largest"}) {
    expect_back_to_rounding(GetParam(), kind, 5001, 1);
  }
  expect_back_to_rounding(GetParam(), "normal", 140001, 3);
}

}  // namespace
}  // namespace sparsewire::every_sparsifier_test
