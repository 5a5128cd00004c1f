// Ends a GoogleTest program whose test hangs, in real time, and says which test it is: ranks, threads and pipes may
// wait without limits of their own. By an alarm, because a thread would not survive the fork() of tests that start
// processes.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>

#include "patience.h"

namespace sparsewire {
namespace {

constexpr std::chrono::seconds kLimit(240);  // of one test: less than ctest gives to a whole suite

std::string message;  // of the test that runs: a handler of a signal must not make it

class Watchdog final : public testing::EmptyTestEventListener {
 public:
  void OnTestStart(const testing::TestInfo& test) override {
    message = std::string("\nthis test hangs: ") + test.test_suite_name() + "." + test.name() + "\n";
    std::signal(SIGALRM, [](int) {
      [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, message.data(), message.size());
      std::abort();
    });
    ::alarm(static_cast<unsigned>(std::chrono::ceil<std::chrono::seconds>(patient(kLimit)).count()));
  }
  void OnTestEnd(const testing::TestInfo& /*test*/) override { ::alarm(0); }
};

[[maybe_unused]] const bool is_on_watch =
    (testing::UnitTest::GetInstance()->listeners().Append(new Watchdog), true);  // which takes it

}  // namespace
}  // namespace sparsewire
