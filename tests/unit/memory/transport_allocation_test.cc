// In the steady state the collectives allocate nothing: those of the thread engine, the defaults of Transport,
// and TCP.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "sparsewire/transport.h"
#include "transport/least.h"
#include "transport/tcp_ranks.h"
#include "unit/memory/counted_memory.h"

namespace sparsewire::transport_allocation_test {
namespace {

// The buffers of one rank.
struct Buffers {
  std::vector<std::byte> mine = std::vector<std::byte>(1000);
  std::vector<std::vector<std::byte>> to = std::vector<std::vector<std::byte>>(4, mine);
  std::vector<std::vector<std::byte>> gathered;
  std::vector<std::vector<std::byte>> from;
  std::vector<std::vector<std::byte>> at_root;
  std::vector<std::byte> bytes = mine;
  std::vector<float> floats = std::vector<float>(100'003);
  std::vector<std::uint16_t> halves = std::vector<std::uint16_t>(1003);

  void use(Transport& transport) {
    transport.all_gather(mine, gathered);
    transport.all_to_all(to, from);
    transport.gather(1, mine, at_root);
    transport.broadcast(2, bytes);
    transport.all_reduce_sum(floats);
    transport.all_reduce_sum({halves.data(), NumberType::bf16, halves.size()});
    transport.barrier();
  }
};

void count(Transport& transport, long& allocations) {
  Buffers buffers;
  for (int round = 0; round < 5; ++round) buffers.use(transport);
  transport.barrier();
  if (transport.rank() == 0) allocations = counted_memory.allocations.load();
  transport.barrier();
  for (int round = 0; round < 20; ++round) buffers.use(transport);
  transport.barrier();
  if (transport.rank() == 0) allocations = counted_memory.allocations.load() - allocations;
  transport.barrier();
}

TEST(AllocationsOfCollectives, AreNoneInTheSteadyState) {
  long allocations = -1;
  run_on_threads(4, [&](Transport& transport) { count(transport, allocations); });
  EXPECT_EQ(allocations, 0);
  run_on_threads(4, [&](Transport& transport) {
    LeastTransport least(transport);
    count(least, allocations);
  });
  EXPECT_EQ(allocations, 0);
  run_over_tcp(4, [&](Transport& transport) { count(transport, allocations); });
  EXPECT_EQ(allocations, 0);
}

}  // namespace
}  // namespace sparsewire::transport_allocation_test
