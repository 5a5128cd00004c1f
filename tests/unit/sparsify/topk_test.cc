// Top-k: counts, ties, zeros, chunks, tensors and the warm-up. adversary_test.cc tests that it is exact over long runs.
#include <gtest/gtest.h>

#include "unit/bare_sparsifier.h"
#include "unit/one_sift.h"
#include "unit/walk.h"

namespace sparsewire::topk_test {
namespace {

TEST(TopK, SendsTheLargestMagnitudes) {
  EXPECT_EQ(sent_once("topk:k=2", {1, -7, 3, -2, 6}), (Indices{1, 4}));
  EXPECT_EQ(sift_once("topk:k=2", {1, -7, 3, -2, 6}, {}).values, (Numbers{-7, 6}));
}

TEST(TopK, BreaksTiesByTheLowerIndex) {
  EXPECT_EQ(sent_once("topk:k=3", {1, 2, -1, 1, -1, 1}), (Indices{0, 1, 2}));
  EXPECT_EQ(sent_once("topk:k=2", Numbers(1000, -1.0F)), (Indices{0, 1}));
}

TEST(TopK, NeverSendsZerosOfEitherSign) {
  EXPECT_TRUE(sent_once("topk:k=3", {0, -0.0F, 0}).empty());
  EXPECT_EQ(sent_once("topk:k=3", {0, -0.0F, 1e-45F, 0}), (Indices{2}));
}

TEST(TopK, RoundsItsCountHalfUpAndSendsAtLeastOne) {
  const auto count = [](double ratio, std::size_t n) {
    return sent_once("topk:ratio=" + std::to_string(ratio), Numbers(n, 1.0F)).size();
  };
  EXPECT_EQ(count(0.01, 149), 1U);
  EXPECT_EQ(count(0.01, 150), 2U);
  EXPECT_EQ(count(0.001, 5), 1U);
  EXPECT_EQ(count(0.5, 5), 3U);
  EXPECT_EQ(count(1, 1), 1U);
}

TEST(TopK, SendsEverythingWhenKIsTheWholeModel) {
  const Numbers gradient = reference::input("normal").make(1000, 0, 1);
  const SparseVector out = sift_once("topk:k=1000", gradient, {});
  EXPECT_EQ(out.values, gradient);
  EXPECT_EQ(out.indices.size(), 1000U);
  EXPECT_FALSE(out.is_full()) << "only dense sends without indices";
}

TEST(TopK, KeepsWhatItDoesNotSend) {
  const std::unique_ptr<BareSparsifier> sparsifier = make_bare("topk:k=1", {.layout = 3});
  Numbers memory(3);
  SparseVector out;
  const Numbers gradient = {1, 3, 2};
  const std::vector<Indices> sent = {{1}, {2}, {1}, {0}};  // 1 3 2 | 2 3 4 | 3 6 2 | 4 3 4
  for (const Indices& indices : sent) {
    sparsifier->sift(Gradient(gradient), memory, out);
    EXPECT_EQ(out.indices, indices);
  }
  EXPECT_EQ(memory, (Numbers{0, 3, 4}));
}

TEST(TopK, CountsWithinEachChunk) {
  EXPECT_EQ(sent_once("topk:k=1,chunk=3", {1, 2, 3, 3, 2, 1, 0.5F}), (Indices{2, 3, 6}));
  EXPECT_EQ(sent_once("topk:k=2,chunk=2", {1, 2, 3}), (Indices{0, 1, 2}));
  EXPECT_EQ(sent_once("topk:ratio=0.5,chunk=4", {1, 2, 3, 4, 5, 6, 7}), (Indices{2, 3, 5, 6}));
}

TEST(TopK, CountsWithinEachTensorInLayerScope) {
  const SifterContext context{.layout = layout_of({4, 0, 2, 1}), .scope = Scope::layer};
  EXPECT_EQ(sent_once("topk:ratio=0.5", {1, 2, 3, 4, 9, 8, 0.5F}, context), (Indices{2, 3, 4, 6}));
  EXPECT_EQ(sent_once("topk:k=3", {1, 2, 3, 4, 9, 8, 0.5F}, context), (Indices{2, 3, 4, 6}));  // 3*4/7, 3*2/7, 3*1/7
}

TEST(TopK, CutsTensorsIntoChunksInLayerScope) {
  const SifterContext context{.layout = layout_of({5, 3}), .scope = Scope::layer};
  EXPECT_EQ(sent_once("topk:k=1,chunk=4", {1, 2, 3, 4, 5, 6, 8, 7}, context), (Indices{3, 4, 6}));
}

TEST(TopK, SendsSmallTensorsWholeAndCountsOverTheRest) {
  const SifterContext context{.layout = layout_of({2, 4, 1})};
  EXPECT_EQ(sent_once("topk:k=1,dense_below=3", {1, 0, 5, 7, 6, 4, 0.1F}, context), (Indices{0, 3, 6}));
  EXPECT_EQ(sent_once("topk:ratio=0.5,dense_below=3", {1, 0, 5, 7, 6, 4, 0.1F}, context), (Indices{0, 3, 4, 6}));
}

TEST(TopK, WarmsUpGeometrically) {
  const std::unique_ptr<BareSparsifier> sparsifier =
      make_bare("topk:ratio=0.01,warmup_from=0.25,warmup_steps=2", {.layout = 1000});
  for (const std::size_t count : {250U, 50U, 10U, 10U}) {
    EXPECT_EQ(sift_afresh(*sparsifier, Numbers(1000, 1.0F)).size(), count);
  }
  const std::unique_ptr<BareSparsifier> later =
      make_bare("topk:ratio=0.01,warmup_from=0.25,warmup_steps=2", {.layout = 1000, .first_step = 1});
  EXPECT_EQ(sift_afresh(*later, Numbers(1000, 1.0F)).size(), 50U);
}

TEST(TopK, AgreesWithTheReferenceForEveryCount) {
  constexpr std::size_t kSize = 257;
  for (const std::size_t k : {1U, 2U, 15U, 16U, 17U, 128U, 255U, 256U, 257U}) {
    const std::string spec = "topk:k=" + std::to_string(k);
    for (const char* kind : {"normal", "few_values", "denormals", "few_non_zeros"}) {
      ASSERT_NO_FATAL_FAILURE(check_input(spec, reference::input(kind), {.layout = kSize}, 6));
      const SifterContext layers{.layout = layout_of({100, 50, 7, 100}), .scope = Scope::layer};
      ASSERT_NO_FATAL_FAILURE(check_input(spec, reference::input(kind), layers, 6));
    }
  }
}

TEST(TopK, AgreesWithTheReferenceForEveryChunk) {
  for (const std::size_t chunk : {1U, 2U, 16U, 63U, 1000U, 4096U, 100000U}) {
    const std::string spec = "topk:ratio=0.1,chunk=" + std::to_string(chunk);
    const std::size_t n = chunk < 1000 ? 501 : 9001;
    for (const char* kind : {"drifting", "signed_ties"}) {
      ASSERT_NO_FATAL_FAILURE(check_input(spec, reference::input(kind), {.layout = n}, 4));
      const SifterContext layers{.layout = layout_of({n / 2, 1, n / 3}), .scope = Scope::layer};
      ASSERT_NO_FATAL_FAILURE(check_input(spec, reference::input(kind), layers, 4));
    }
  }
  ASSERT_NO_FATAL_FAILURE(check_input("topk:k=64,chunk=4096", reference::input("drifting"), {.layout = 50001}, 4));
}

}  // namespace
}  // namespace sparsewire::topk_test
