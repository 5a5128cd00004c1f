// When a rank concludes that another one is late: by times that the tests choose.
#include "transport/watch.h"

#include <gtest/gtest.h>

namespace sparsewire::watch_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kDeadline(80);
constexpr seconds kLook(10);  // look_every(kDeadline)

// Rank 0 of two, which waits for rank 1 from `now` on.
struct Waiting {
  Waiting() { watch.begin_call(now); }

  // Looks again, that much later.
  std::optional<int> look_after(milliseconds time) {
    now += time;
    return watch.find_late_rank(now, [](std::vector<int>& missing) { missing = {1}; });
  }

  Watch::Clock::time_point now{std::chrono::hours(1)};
  Watch watch{0, 2, kDeadline, 1};
};

TEST(Watch, FindsTheRankThatWasSilentForTheDeadline) {
  Waiting waiting;
  for (int i = 0; i < 7; ++i) EXPECT_EQ(waiting.look_after(kLook), std::nullopt);
  EXPECT_EQ(waiting.look_after(kLook - milliseconds(1)), std::nullopt);
  EXPECT_EQ(waiting.look_after(milliseconds(1)), 1);
}

TEST(Watch, DoesNotCountTheTimeInWhichItsProcessWasSuspended) {
  for (const seconds before : {seconds(0), kLook, 7 * kLook}) {
    Waiting waiting;
    for (seconds waited(0); waited < before; waited += kLook) ASSERT_EQ(waiting.look_after(kLook), std::nullopt);
    EXPECT_EQ(waiting.look_after(std::chrono::hours(10)), std::nullopt);
    // What it had waited before counts.
    for (seconds waited = before + kLook; waited < kDeadline; waited += kLook) {
      EXPECT_EQ(waiting.look_after(kLook), std::nullopt);
    }
    EXPECT_EQ(waiting.look_after(kLook), 1);
  }
}

TEST(Watch, FindsALateRankAlsoIfItIsSuspendedAgainAndAgain) {
  Waiting waiting;
  for (int i = 0; i < 7; ++i) {
    ASSERT_EQ(waiting.look_after(kLook), std::nullopt);
    ASSERT_EQ(waiting.look_after(2 * kDeadline), std::nullopt);
  }
  EXPECT_EQ(waiting.look_after(kLook), 1);
}

TEST(Watch, CountsTheTimeInWhichItGotNoProcessor) {
  Waiting waiting;
  for (int i = 0; i < 7; ++i) EXPECT_EQ(waiting.look_after(kLook + milliseconds(900)), std::nullopt);
  EXPECT_EQ(waiting.look_after(kLook), 1);
}

TEST(Watch, DoesNotTakeAnOldStatusForSilenceAfterASuspension) {
  Waiting waiting;
  EXPECT_EQ(waiting.look_after(std::chrono::hours(10)), std::nullopt);
  const std::int32_t ten_hours = 36'000'000;  // in milliseconds
  waiting.watch.read_status(1, ten_hours, std::vector<std::int32_t>{0}, waiting.now);
  for (int i = 0; i < 7; ++i) EXPECT_EQ(waiting.look_after(kLook), std::nullopt);
}

}  // namespace
}  // namespace sparsewire::watch_test
