// The parts of core: the layout of tensors, the pool of threads, the choice of SIMD level.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "kernels/simd.h"
#include "sparsewire/errors.h"
#include "sparsewire/layout.h"
#include "sparsewire/pool.h"

namespace sparsewire::core_test {
namespace {

TEST(Layout, KnowsItsTensors) {
  const Layout layout({{"weight", 6, 0}, {"nothing", 0, 0}, {"bias", 3, 0}});
  EXPECT_EQ(layout.dim(), 9U);
  ASSERT_NE(layout.find("bias"), nullptr);
  EXPECT_EQ(layout.find("bias")->begin, 6U);
  EXPECT_EQ(layout.find("nosuch"), nullptr);
  EXPECT_EQ(layout.at(0).name, "weight");
  EXPECT_EQ(layout.at(5).name, "weight");
  EXPECT_EQ(layout.at(6).name, "bias");
  EXPECT_EQ(layout.at(8).name, "bias");
  EXPECT_EQ(Layout(7).tensors().size(), 1U);
}

TEST(Layout, RefusesEqualNamesAndTooManyEntries) {
  const std::uint64_t most = (std::uint64_t{1} << 32U) - 1;
  EXPECT_THROW(Layout({{"a", 1, 0}, {"b", 1, 0}, {"a", 1, 0}}), UsageError);
  EXPECT_THROW(Layout({{"a", most, 0}, {"b", 1, 0}}), UsageError);
  EXPECT_THROW(Layout({{"a", ~std::uint64_t{0}, 0}, {"b", 2, 0}}), UsageError);
  EXPECT_THROW(Layout(most + 1), UsageError);
  EXPECT_THROW(Layout({{std::string("a\0b", 3), 1, 0}}), UsageError);
  EXPECT_EQ(Layout(most).dim(), most);
}

TEST(Pool, RefusesImpossibleNumbersOfThreads) {
  EXPECT_THROW(Pool(0), UsageError);
  EXPECT_THROW(Pool(-1), UsageError);
  EXPECT_THROW(Pool(1025), UsageError);
}

TEST(Pool, CallsTheWorkOnceForEveryThread) {
  for (const int threads : {1, 2, 3, 8}) {
    Pool pool(threads);
    EXPECT_EQ(pool.size(), threads);
    std::vector<int> calls(static_cast<std::size_t>(threads));
    for (int round = 0; round < 50; ++round) pool.run([&](int thread) { ++calls[static_cast<std::size_t>(thread)]; });
    EXPECT_EQ(calls, std::vector<int>(static_cast<std::size_t>(threads), 50));
  }
}

// The threads are in the parent only: whoever waited for them in the child would wait for ever.
TEST(Pool, WorksAndEndsInAChildProcess) {
  std::vector<int> calls(4);
  auto pool = std::make_unique<Pool>(4);
  const auto run = [&] { pool->run([&](int thread) { ++calls[static_cast<std::size_t>(thread)]; }); };
  run();
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    run();
    pool.reset();
    ::_exit(calls == std::vector<int>(4, 2) ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  run();  // the parent still has them
  EXPECT_EQ(calls, std::vector<int>(4, 2));
}

TEST(Simd, RefusesALevelItDoesNotHave) {
  const std::string before = kernels::simd_level();
  EXPECT_THROW(kernels::force_simd("nosuch"), UsageError);
  EXPECT_EQ(kernels::simd_level(), before);
  for (const std::string& level : kernels::simd_levels()) {
    kernels::force_simd(level);
    EXPECT_EQ(kernels::simd_level(), level);
  }
  kernels::force_simd("auto");
  EXPECT_EQ(kernels::simd_level(), kernels::simd_levels().back());
}

}  // namespace
}  // namespace sparsewire::core_test
