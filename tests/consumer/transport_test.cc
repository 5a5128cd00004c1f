// A transport of one's own, and the tests that every transport has to pass.
#include <sparsewire/testing/transport_conformance.h>

#include <string>
#include <thread>
#include <vector>

#include "queue_transport.h"

namespace sparsewire::conformance {
namespace {

Engine queues(int ranks) {
  return {.name = "On" + std::to_string(ranks) + "Ranks", .ranks = ranks, .run = [ranks](const Body& body) {
            Queues queues(ranks);
            std::vector<std::jthread> threads;
            for (int rank = 0; rank < ranks; ++rank) {
              threads.emplace_back([&queues, &body, rank] {
                QueueTransport transport(queues, rank);
                body(transport);
              });
            }
          }};
}

INSTANTIATE_TEST_SUITE_P(Queues, TransportConformance, testing::Values(queues(1), queues(2), queues(3), queues(5)),
                         name_of);

}  // namespace
}  // namespace sparsewire::conformance
