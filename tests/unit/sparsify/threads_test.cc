// Each thread ranks, chooses and puts back the entries of its own part, and small units are dealt out to the threads.
// The result is that of the reference, with the same bits on every number of threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "effort.h"
#include "kernels/draw.h"
#include "kernels/select.h"
#include "sparsewire/errors.h"
#include "sparsewire/sifter.h"
#include "sparsewire/support/philox.h"
#include "unit/walk.h"

namespace sparsewire::threads_test {
namespace {

// Divided into parts, the last of which ends within a tile.
constexpr std::size_t kSize = 150001;
constexpr std::size_t kPart = 16384;  // the parts of the threads begin at multiples of it

std::vector<Machine> machines_here() {
  const std::string simd = machines().front().simd;
  if (kSlowBuild) return {{simd, 1}, {simd, 3}};
  return {{simd, 1}, {simd, 2}, {simd, 3}, {simd, 16}};
}

using Numbering = std::function<float(int step, std::size_t i)>;

void expect_same(const std::string& spec, const SifterContext& context, const Numbering& number, int steps = 3) {
  std::vector<Numbers> gradients;
  if (kSlowBuild) steps = 2;
  for (int step = 0; step < steps; ++step) {
    Numbers gradient(context.layout.dim());
    for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] = number(step, i);
    gradients.push_back(std::move(gradient));
  }
  check({spec, context, borrow(gradients)}, machines_here());
}

float noise(int step, std::size_t i) {
  const auto hash = static_cast<std::uint32_t>((i + 1) * 2654435761U + static_cast<std::size_t>(step) * 40503U);
  return static_cast<float>(static_cast<std::int32_t>((hash ^ hash >> 15) * 2246822519U)) * 0x1p-31F;
}

const std::vector<std::string>& methods() {
  static const std::vector<std::string> all = {"topk:ratio=0.01", "rtopk:ratio=0.01,r=2", "regtopk:ratio=0.01,mu=1",
                                               "threshold:ratio=0.01,calibrate=2", "randomk:ratio=0.01"};
  static const std::vector<std::string> some = {all[1], all[2]};
  return kSlowBuild ? some : all;
}

TEST(Threads, ChooseTheSameOfNumbersThatAreAllEqual) {
  for (const std::string& spec : methods()) {
    expect_same(spec, {.layout = kSize}, [](int, std::size_t i) { return i % 2 == 0 ? 0.5F : -0.5F; });
  }
}

// Most entries with the k-th magnitude are at the borders of the parts, on both sides.
TEST(Threads, DealOutTiesAcrossTheirBorders) {
  for (const char* spec : {"topk:k=100", "topk:k=1000", "topk:k=1001", "rtopk:k=500,r=2"}) {
    expect_same(spec, {.layout = kSize}, [](int step, std::size_t i) {
      const bool is_at_border = (i + 64) % kPart < 128;
      return is_at_border ? 2.0F : i % 9973 == 17 ? 3.0F : noise(step, i);
    });
  }
}

TEST(Threads, FindFewerThanKThatAreNotZero) {
  for (const std::string& spec : methods()) {
    expect_same(spec, {.layout = kSize},
                [](int step, std::size_t i) { return i % 700 == 3 && i > kSize / 2 ? noise(step, i) : 0.0F; });
  }
}

// The scale jumps, so that the guesses are wrong and a second pass is needed; all large numbers are in one part.
TEST(Threads, FindThemInOnePartAfterAWrongGuess) {
  for (const std::string& spec : methods()) {
    expect_same(
        spec, {.layout = kSize},
        [](int step, std::size_t i) {
          const float scale = step % 2 == 0 ? 100.0F : 0.01F;
          return noise(step, i) * (i / kPart == 3 ? 50.0F : 1.0F) * scale;
        },
        4);
  }
}

TEST(Threads, ShareLargeUnitsAndDealOutSmallOnes) {
  const Layout layout = layout_of({5, 70000, 3, 1, 4096, 90001, 12, 30000, 4097, 20000, 65537, 2});
  for (const std::string& spec : methods()) {
    SifterContext context{.layout = layout, .scope = Scope::layer};
    expect_same(spec, context, noise);
    expect_same(spec + ",dense_below=10", context, noise);
  }
}

// Enough draws for several threads, also of those to be left out, and many draws of the same position.
TEST(Threads, DrawTheSamePositions) {
  kernels::Drawer alone;
  const Stream stream(5, 0, 1, 7);
  for (const std::size_t n : {70000U, 100003U, 5000000U, 0xFFFFFFFFU}) {
    for (const std::size_t k : {std::size_t{33000}, std::size_t{69990}}) {
      const std::uint32_t* const expected = alone.positions(stream, k, n);
      for (const int threads : {2, 3, 16}) {
        kernels::Drawer together;
        const std::uint32_t* const drawn = together.positions(stream, k, n, pool_of(threads));
        EXPECT_TRUE(std::equal(expected, expected + k, drawn)) << k << " of " << n << ", " << threads << " threads";
      }
    }
  }
}

TEST(Threads, DealOutChunks) {
  for (const char* spec : {"topk:ratio=0.01,chunk=4096", "topk:k=2,chunk=3", "topk:k=1,chunk=1"}) {
    if (kSlowBuild && std::string_view(spec).ends_with("chunk=1")) continue;
    const bool is_tiny = std::string_view(spec).find("4096") == std::string_view::npos;
    expect_same(spec, {.layout = is_tiny ? 70001 : kSize}, noise, 2);
    expect_same(
        spec, {.layout = is_tiny ? 70001 : kSize}, [](int, std::size_t) { return 1.0F; }, 2);
  }
}

// In units that are shared, units that are dealt out, and several of both.
TEST(Threads, FindTheLowestBadNumberAndTakeTheStepBack) {
  const Layout layout = layout_of({5, 70000, 3, 90001, 30000, 20000, 65537, 2});
  const std::size_t n = layout.dim();
  for (const std::vector<std::size_t>& places :
       {std::vector<std::size_t>{2}, {70006, 100}, {n - 1, 70004}, {n - 1, 200000}, {180000, 90000, 20}, {165009}}) {
    for (const char* spec : {"topk:ratio=0.01", "topk:ratio=0.01,dense_below=10", "topk:ratio=0.01,chunk=1000"}) {
      Numbers expected;
      for (const Machine& machine : machines_here()) {
        SCOPED_TRACE(::testing::Message() << spec << " on " << machine << ", lowest of " << places.size());
        SifterContext context{.layout = layout, .scope = Scope::layer, .pool = pool_of(machine.threads)};
        const std::unique_ptr<BareSparsifier> sparsifier = make_bare(spec, context);
        Numbers memory(n);
        Numbers gradient(n);
        for (std::size_t i = 0; i < n; ++i) {
          memory[i] = noise(1, i);
          gradient[i] = noise(2, i);
        }
        for (const std::size_t place : places) gradient[place] = std::numeric_limits<float>::quiet_NaN();
        SparseVector out;
        try {
          sparsifier->sift(Gradient(gradient), memory, out);
          ADD_FAILURE() << "no error";
        } catch (const BadGradient& error) {
          EXPECT_EQ(error.index(), *std::min_element(places.begin(), places.end()));
        }
        EXPECT_EQ(out.size(), 0U);
        if (expected.empty()) expected = memory;
        ASSERT_TRUE(same_bits(expected, memory));
      }
    }
  }
}

// What a worker does with the entries of a step, many enough for all threads: rounding losses, observe(), undo().
std::vector<std::vector<float>> steps_of_a_worker(const std::string& spec, const std::string& feedback, int threads) {
  Sifter sifter(spec, feedback, {.layout = kSize, .ranks = 4, .pool = pool_of(threads)});
  std::vector<std::vector<float>> seen;
  SparseVector sent;
  Numbers gradient(kSize);
  for (int step = 0; step < 3; ++step) {
    for (std::size_t i = 0; i < kSize; ++i) gradient[i] = noise(step, i);
    sifter.sift(Gradient(gradient), sent);
    EXPECT_GT(sent.size(), kSize / 3);
    Numbers received = sent.values;
    for (std::size_t i = 0; i < received.size(); ++i) received[i] = i % 5 == 0 ? 0 : received[i] * 0.75F;
    if (step == 1) {
      sifter.undo(Gradient(gradient), sent);
    } else {
      sifter.keep_rounding_loss(sent, received);
      SparseVector decoded = sent;
      decoded.values = received;
      sifter.observe(decoded, Numbers(sent.size(), 0.125F));
    }
    seen.push_back(sifter.memory());
    seen.push_back(sifter.velocity());
    seen.push_back(sent.values);
    const double norms[] = {sifter.stats().memory_norm2, sifter.stats().total_error};
    for (const double norm : norms) {
      seen.push_back(
          {static_cast<float>(norm), static_cast<float>(norm - static_cast<double>(static_cast<float>(norm)))});
    }
  }
  return seen;
}

TEST(Threads, KeepLossesObserveAndUndoTheSame) {
  for (const char* spec : {"regtopk:ratio=0.4,mu=1", "topk:ratio=0.5,chunk=4096", "threshold:lambda=0.3"}) {
    for (const char* feedback : {"ef", "momentum:m=0.9,clip=300", "none"}) {
      const std::vector<std::vector<float>> expected = steps_of_a_worker(spec, feedback, 1);
      for (const int threads : kSlowBuild ? std::vector{3} : std::vector{3, 16}) {
        SCOPED_TRACE(::testing::Message() << spec << ", " << feedback << ", " << threads << " threads");
        const std::vector<std::vector<float>> seen = steps_of_a_worker(spec, feedback, threads);
        for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_TRUE(same_bits(expected[i], seen[i])) << i;
      }
    }
  }
}

// A server's step: a sparse sum is added, sifted, and taken back.
TEST(Threads, SiftSparseSumsTheSame) {
  SparseVector sum;
  sum.dim = kSize;
  for (std::uint32_t i = 0; i < kSize; i += 2) {
    sum.indices.push_back(i);
    sum.values.push_back(noise(0, i));
  }
  std::vector<Numbers> memories;
  for (const Machine& machine : machines_here()) {
    Sifter sifter("topk:ratio=0.3", "ef", {.layout = kSize, .pool = pool_of(machine.threads)});
    SparseVector sent;
    sifter.sift(sum, sent);
    const Numbers before = sifter.memory();
    SparseVector second;
    sifter.sift(sum, second);
    sifter.undo(sum, second);
    EXPECT_TRUE(same_bits(before, sifter.memory()));
    memories.push_back(before);
    EXPECT_TRUE(same_bits(memories.front(), before));
  }
}

// The k-th of several lists is that of all of them together, and the counts of each list are right.
TEST(Threads, SearchTheirListsTogether) {
  for (const std::size_t n : {1U, 3U, 511U, 512U, 513U, 5000U, 60000U}) {
    for (const std::uint32_t range : {1U, 7U, 4000U, 0x7F000000U}) {
      SCOPED_TRACE(::testing::Message() << n << " keys below " << range);
      std::vector<std::uint32_t> keys(n);
      for (std::size_t i = 0; i < n; ++i) {
        keys[i] = static_cast<std::uint32_t>((i * 0x9E3779B97F4A7C15U >> 20) % range) + 5;
      }
      std::vector<std::uint32_t> sorted = keys;
      std::sort(sorted.begin(), sorted.end(), std::greater<>());
      std::vector<std::uint32_t> scratch(n);
      for (const std::size_t k : {std::size_t{1}, (n + 1) / 2, n}) {
        std::vector<kernels::KeyList> lists(3);  // the second is empty
        const std::size_t cut = n / 3;
        lists[0].n = cut;
        lists[2].n = n - cut;
        lists[0].keys = lists[1].keys = keys.data();
        lists[2].keys = keys.data() + cut;
        lists[0].scratch = lists[1].scratch = scratch.data();
        lists[2].scratch = scratch.data() + cut;
        const kernels::Kth kth = kernels::kth_largest(lists, k, pool_of(3));
        ASSERT_EQ(kth.key, sorted[k - 1]);
        std::size_t above = 0;
        for (const kernels::KeyList& list : lists) {
          const auto is_above = [&](std::uint32_t key) { return key > kth.key; };
          EXPECT_EQ(list.above, static_cast<std::size_t>(std::count_if(list.keys, list.keys + list.n, is_above)));
          EXPECT_EQ(list.equal, static_cast<std::size_t>(std::count(list.keys, list.keys + list.n, kth.key)));
          above += list.above;
        }
        EXPECT_EQ(kth.above, above);
      }
    }
  }
}

}  // namespace
}  // namespace sparsewire::threads_test
