// Ranks whose threads flush denormal numbers to zero, as machine-learning frameworks set them, get the same bits.
#include <gtest/gtest.h>

#include <array>
#include <cfenv>
#include <limits>
#include <vector>

#include "sparsewire/codec.h"
#include "sparsewire/sifter.h"
#include "sparsewire/worker.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace sparsewire::float_mode_test {
namespace {

constexpr float kDenormal = std::numeric_limits<float>::denorm_min() * 1000;

#ifdef __x86_64__
constexpr bool kCanFlush = true;

// While one lives, this thread flushes denormal results and operands to zero.
class FlushToZero {
 public:
  explicit FlushToZero(bool wanted) : before_(_mm_getcsr()) {
    if (wanted) _mm_setcsr(before_ | kFlags);
  }
  ~FlushToZero() { _mm_setcsr(before_); }

  static bool is_on() { return (_mm_getcsr() & kFlags) == kFlags; }

 private:
  static constexpr unsigned kFlags = 0x8040;
  unsigned before_;
};
#else
constexpr bool kCanFlush = false;
class FlushToZero {
 public:
  explicit FlushToZero(bool) {}
  static bool is_on() { return false; }
};
#endif

// All of them are made here, before any thread flushes.
std::vector<float> make_gradient(int rank, int step) {
  std::vector<float> gradient(200);
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    gradient[i] = kDenormal * static_cast<float>(1 + (i * 7 + static_cast<std::size_t>(rank + 3 * step)) % 13);
  }
  return gradient;
}

const std::vector<float>& gradient_of(int rank, int step) {
  static const auto all = [] {
    std::array<std::array<std::vector<float>, 5>, 3> made;
    for (int r = 0; r < 3; ++r) {
      for (int s = 0; s < 5; ++s)
        made.at(static_cast<std::size_t>(r)).at(static_cast<std::size_t>(s)) = make_gradient(r, s);
    }
    return made;
  }();
  return all.at(static_cast<std::size_t>(rank)).at(static_cast<std::size_t>(step));
}

class FloatMode : public ::testing::Test {
 protected:
  void SetUp() override {
    gradient_of(0, 0);
    if (!kCanFlush) GTEST_SKIP() << "this test knows the mode of x86-64 processors only";
  }
};

using Updates = std::vector<std::vector<float>>;

// The updates of rank 0 and of the last rank, of which the latter may flush.
std::vector<Updates> updates(const WorkerConfig& config, bool flush) {
  std::vector<Updates> all(3);
  run_on_threads(3, [&](Transport& transport) {
    const int rank = transport.rank();
    const FlushToZero mode(flush && rank == 2);
    Pool pool(2);
    WorkerConfig mine = config;
    mine.pool = &pool;
    Worker worker(mine, 200, transport);
    std::vector<float> update(200);
    for (int step = 0; step < 5; ++step) {
      worker.step(gradient_of(rank, step));
      worker.write_update(update);
      all[static_cast<std::size_t>(rank)].push_back(update);
    }
    EXPECT_EQ(FlushToZero::is_on(), flush && rank == 2) << "the caller's mode was changed";
  });
  return all;
}

TEST_F(FloatMode, OfOneRankDoesNotChangeTheUpdates) {
  for (const char* sparsifier : {"topk:ratio=0.2", "dense", "threshold:lambda=1e-43", "randomk:ratio=0.2"}) {
    for (const char* exchange : {"dense", "allgather", "server", "sharded"}) {
      WorkerConfig config{.sparsifier = sparsifier, .exchange = exchange, .check_every = 1};
      const auto expected = updates(config, false);
      EXPECT_TRUE(expected[0] == expected[2]);
      EXPECT_FALSE(expected[0][0] == std::vector<float>(200)) << "denormal numbers must arrive";
      EXPECT_TRUE(updates(config, true) == expected) << sparsifier << ", " << exchange;
    }
  }
}

TEST_F(FloatMode, DoesNotChangeWhatASifterSendsAndKeeps) {
  for (const char* feedback : {"ef", "ef:decay=0.5", "momentum:m=0.5"}) {
    std::vector<float> memories[2];
    SparseVector sent[2];
    for (const bool flush : {false, true}) {
      const FlushToZero mode(flush);
      Sifter sifter("topk:k=20", feedback, {.layout = 200});
      for (int step = 0; step < 3; ++step) sifter.sift(gradient_of(0, step), sent[flush ? 1 : 0]);
      const auto memory = sifter.memory();
      memories[flush ? 1 : 0].assign(memory.begin(), memory.end());
    }
    EXPECT_EQ(sent[0], sent[1]) << feedback;
    EXPECT_EQ(memories[0], memories[1]) << feedback;
  }
}

TEST_F(FloatMode, DoesNotChangeWhatIsEncodedAndDecoded) {
  SparseVector vector{.dim = 4, .indices = {0, 1, 2}, .values = {6e-8F, 3e-5F, kDenormal}, .draw = {}};
  for (const char* spec : {"golomb:values=f32", "golomb:values=f16", "golomb:values=bf16", "golomb:values=int8"}) {
    std::vector<std::byte> frames[2];
    SparseVector decoded[2];
    for (const bool flush : {false, true}) {
      const FlushToZero mode(flush);
      Codec(spec).encode(vector, frames[flush ? 1 : 0]);
      ASSERT_EQ(decode(frames[0], decoded[flush ? 1 : 0]), DecodeStatus::ok);
    }
    EXPECT_EQ(frames[0], frames[1]) << spec;
    EXPECT_EQ(decoded[0].values, decoded[1].values) << spec;
  }
}

// While one lives, this thread rounds in that direction.
class Rounding {
 public:
  explicit Rounding(int direction) : before_(std::fegetround()) { std::fesetround(direction); }
  ~Rounding() { std::fesetround(before_); }
  Rounding(const Rounding&) = delete;
  Rounding& operator=(const Rounding&) = delete;

 private:
  int before_;
};

TEST_F(FloatMode, WhileAWorkerIsMadeDoesNotChangeTheUpdates) {
  for (const int direction : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    for (const char* exchange : {"allgather", "sharded"}) {
      std::vector<float> results[2];
      for (const bool rounded : {false, true}) {
        run_on_threads(3, [&](Transport& transport) {
          const Rounding mode(rounded && transport.rank() == 1 ? direction : FE_TONEAREST);
          WorkerConfig config{.feedback = "ef:decay=0.9", .exchange = exchange, .check_every = 1};
          config.weight = 1 + 0.37 * transport.rank();
          Worker worker(config, 200, transport);
          std::vector<float> update(200);
          std::vector<float> gradient(200);
          for (std::size_t i = 0; i < 200; ++i) gradient[i] = static_cast<float>(i % 17) + 1;
          for (int step = 0; step < 4; ++step) {
            worker.step(gradient);
            worker.write_update(update);
          }
          if (transport.rank() == 0) results[rounded ? 1 : 0] = update;
        });
      }
      EXPECT_EQ(results[0], results[1]) << exchange << ", direction " << direction;
    }
  }
}

TEST_F(FloatMode, DoesNotChangeWhatASifterObserves) {
  SparseVector sent[2];
  const std::vector<float> gradient = {1e-39F, 2e-39F, 3e-39F, 4e-39F};
  const std::vector<float> at_sent = {1e-39F, 1e-39F};
  for (const bool flush : {false, true}) {
    const FlushToZero mode(flush);
    Sifter sifter("regtopk:k=2,mu=4", "ef", {.layout = 4, .ranks = 2});
    SparseVector& out = sent[flush ? 1 : 0];
    sifter.sift(gradient, out);
    sifter.observe(out, at_sent);
    sifter.sift(gradient, out);
  }
  EXPECT_EQ(sent[0], sent[1]);
}

}  // namespace
}  // namespace sparsewire::float_mode_test
