// TCP for the tests that every transport must pass.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "meeting.h"
#include "patience.h"
#include "sparsewire/testing/transport_conformance.h"
#include "transport/tcp_ranks.h"

namespace sparsewire {

inline conformance::Engine tcp_engine(int ranks) {
  const auto met = std::make_shared<Meeting>(ranks);
  return {.name = "On" + std::to_string(ranks),
          .ranks = ranks,
          .run = [=](const conformance::Body& body) { run_over_tcp(ranks, met->watched(body)); },
          .run_with_deadline = {},
          .meet = [=] { met->arrive_and_wait(); },
          .fail_reaches_all = true};
}

// ... of a group of its own, in which the deadline passes.
inline conformance::Engine tcp_engine_with_deadline(int ranks) {
  conformance::Engine engine = tcp_engine(ranks);
  const auto met = std::make_shared<Meeting>(ranks);
  engine.run_with_deadline = [=](const conformance::Body& body, std::chrono::milliseconds deadline) {
    run_over_tcp(ranks, met->watched(body), deadline);
  };
  engine.meet = [=] { met->arrive_and_wait(); };
  engine.short_deadline = deadline_that_passes();
  return engine;
}

}  // namespace sparsewire
