// Deadlines of TCP that pass in the test, in real time, between ranks that are threads here.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "patience.h"
#include "sparsewire/tcp_transport.h"
#include "sparsewire/testing/transport_conformance.h"
#include "transport/tcp_engine.h"
#include "transport/tcp_ranks.h"

namespace sparsewire::conformance {

// With five ranks only: to wait takes most of the time.
INSTANTIATE_TEST_SUITE_P(TcpDeadlines, TransportConformance, testing::Values(tcp_engine_with_deadline(5)), name_of);

}  // namespace sparsewire::conformance

namespace sparsewire::tcp_deadlines_test {
namespace {

using conformance::error_that_names;

// All at once, because most of the time they wait.
TEST(TcpSetupDeadlines, NameARankThatDoesNotComeAndItsAddress) {
  std::vector<std::jthread> threads;
  for (const int late : {0, 1, 2}) {
    const auto all = std::make_shared<std::vector<TcpListener>>(listeners(3));
    const std::vector<std::string> addresses = addresses_of(*all);
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == late) continue;
      threads.emplace_back([=] {
        const std::string error = error_that_names(late, [&] {
          make_tcp_transport(std::move(all->at(static_cast<std::size_t>(rank))), rank, addresses, kTcpToken,
                             deadline_that_passes());
        });
        EXPECT_NE(error.find(addresses[static_cast<std::size_t>(late)]), std::string::npos) << error;
      });
    }
  }
}

TEST(TcpSetupDeadlines, NameARankWithAnotherToken) {
  std::vector<std::jthread> threads;
  for (const std::string& token : {std::string("a secret\0of alL", 15), std::string()}) {
    const auto all = std::make_shared<std::vector<TcpListener>>(listeners(2));
    const std::vector<std::string> addresses = addresses_of(*all);
    threads.emplace_back([=] {
      const std::string error = error_that_names(0, [&] {
        make_tcp_transport(std::move(all->at(1)), 1, addresses, token, patient(std::chrono::seconds(60)));
      });
      EXPECT_NE(error.find("another token"), std::string::npos) << error;
    });
    threads.emplace_back([=] {
      const std::string error = error_that_names(
          1, [&] { make_tcp_transport(std::move(all->at(0)), 0, addresses, kTcpToken, deadline_that_passes()); });
      EXPECT_NE(error.find(addresses[1]), std::string::npos) << error;
      EXPECT_NE(error.find("2 connections with another token"), std::string::npos) << error;
    });
  }
}

}  // namespace
}  // namespace sparsewire::tcp_deadlines_test
