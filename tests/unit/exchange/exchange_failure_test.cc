// What all ranks do when the exchange goes wrong on one: ranks that are not in the same step, messages that cannot be
// read, replicas that differ, calls that fail, ranks that are lost. Ranks are threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "exchange/tampering.h"
#include "meeting.h"
#include "unit/exchange_cases.h"

namespace sparsewire::exchange_failure_test {
namespace {

using bodies::Bytes;
using bodies::ExchangeCase;
using bodies::Plan;
using bodies::Runner;
using ::testing::HasSubstr;

std::vector<Bytes> saved_after(const Plan& plan, int ranks, std::uint64_t steps) {
  std::vector<Bytes> states(static_cast<std::size_t>(ranks));
  run_on_threads(ranks, [&](Transport& transport) {
    Runner run(plan, transport);
    for (std::uint64_t t = 0; t < steps; ++t) run.step(t);
    states[static_cast<std::size_t>(transport.rank())] = run.worker.save();
  });
  return states;
}

// ---- Ranks that are not in the same step ----

TEST(WorkersOutOfStep, AreNoticedByAllRanks) {
  for (const ExchangeCase& setup : bodies::every_exchange_case()) {
    for (const bool same_plan : {true, false}) {
      for (const int odd : {0, 1, 2}) {
        SCOPED_TRACE(setup.name() + ", rank " + std::to_string(odd));
        const Plan plan = bodies::plan_of("topk:ratio=0.1", setup);
        Plan other = plan;
        if (!same_plan) other.layout = 77;
        std::atomic<int> thrown = 0;
        run_on_threads(3, [&](Transport& transport) {
          Runner one(plan, transport);
          Runner two(other, transport);
          one.step(0), two.step(0);
          Runner& next = transport.rank() == odd ? two : one;
          try {
            next.step(1);
          } catch (const TransportError& error) {
            EXPECT_THAT(error.what(), HasSubstr("is not in the same step as rank 0"));
            EXPECT_EQ(error.rank(), odd == 0 ? 1 : odd);  // all compare with rank 0
            ++thrown;
          }
          EXPECT_THROW(next.step(1), UsageError);
          EXPECT_THROW(next.worker.save(), UsageError);
        });
        EXPECT_EQ(thrown, 3);
      }
    }
  }
}

TEST(WorkersOutOfStep, AreNoticedAlsoIfOneIsAStepBehind) {
  for (const ExchangeCase& setup : bodies::every_exchange_case()) {
    SCOPED_TRACE(setup.name());
    const Plan plan = bodies::plan_of("topk:ratio=0.1", setup);
    const std::vector<Bytes> early = saved_after(plan, 3, 1);
    const std::vector<Bytes> late = saved_after(plan, 3, 2);
    std::atomic<int> thrown = 0;
    run_on_threads(3, [&](Transport& transport) {
      Runner run(plan, transport);
      run.worker.load(transport.rank() == 2 ? early : late);
      try {
        run.step(2);
      } catch (const TransportError& error) {
        EXPECT_EQ(error.rank(), 2);
        ++thrown;
      }
    });
    EXPECT_EQ(thrown, 3);
  }
}

// ---- Frames that cannot be read ----

// Cuts `cut` bytes off the next message that comes from rank 1.
class CuttingTransport final : public WrappedTransport {
 public:
  using WrappedTransport::WrappedTransport;
  std::size_t cut = 0;  // bytes, from the end

  void do_send_receive(std::span<const Outgoing> out, std::span<const Incoming> in) override {
    WrappedTransport::do_send_receive(out, in);
    for (const Incoming& message : in) {
      if (message.rank != 1) continue;
      const auto less = static_cast<std::ptrdiff_t>(std::min(cut, message.bytes->size()));
      message.bytes->erase(message.bytes->end() - less, message.bytes->end());
    }
    cut = 0;
  }
};

// Only rank 0 gets an unreadable message. It is the server, so it has to tell the other ranks.
TEST(AnUnreadableFrame, IsReportedByAllRanksIfTheServerGotIt) {
  for (const ExchangeCase& setup : {ExchangeCase{"server"}, {"server", true}}) {
    for (const std::size_t cut : {1U, 30U, 1000000U}) {
      SCOPED_TRACE(setup.name() + ", " + std::to_string(cut) + " bytes");
      const Plan plan = bodies::plan_of("topk:ratio=0.1", setup);
      std::atomic<int> thrown = 0;
      run_on_threads(3, [&](Transport& transport) {
        CuttingTransport cutting(transport);
        Runner run(plan, cutting);
        run.step(0);
        if (transport.rank() == 0) cutting.cut = cut;
        try {
          run.step(1);
        } catch (const TransportError& error) {
          EXPECT_EQ(error.rank(), 1);
          EXPECT_THAT(error.what(), HasSubstr("rank 1"));
          ++thrown;
        }
        EXPECT_THROW(run.step(2), UsageError);
      });
      EXPECT_EQ(thrown, 3);
    }
  }
}

TEST(AnUnreadableFrame, MakesTheWorkerThatGotItUnusable) {
  for (const ExchangeCase& setup : {ExchangeCase{"allgather"}, {"sharded"}, {"sharded", true}, {"dense"}}) {
    SCOPED_TRACE(setup.name());
    const Plan plan = bodies::plan_of("topk:ratio=0.1", setup);
    std::atomic<int> thrown = 0;
    const auto body = [&](Transport& transport) {
      CuttingTransport cutting(transport);
      Runner run(plan, cutting);
      run.step(0);
      if (transport.rank() == 2) cutting.cut = 3;
      try {
        for (std::uint64_t t = 1; t < 4; ++t) run.step(t);
      } catch (const TransportError&) {
        EXPECT_THROW(run.step(4), UsageError);
        ++thrown;
        throw;
      }
    };
    EXPECT_THROW(run_on_threads(3, body), TransportError);
    EXPECT_EQ(thrown, 3);
  }
}

// Damages the first byte of the next message from each of some ranks: their frames cannot be decoded, what follows the
// frames can be read.
class DamagingTransport final : public WrappedTransport {
 public:
  using WrappedTransport::WrappedTransport;
  std::vector<int> ranks;

  void do_send_receive(std::span<const Outgoing> out, std::span<const Incoming> in) override {
    WrappedTransport::do_send_receive(out, in);
    for (const Incoming& message : in) {
      if (std::erase(ranks, message.rank) != 0) message.bytes->front() ^= std::byte{0xFF};
    }
  }
};

// Rank 0 is a server, or serves a region: all ranks hear from it whose frame it could not decode.
TEST(AnUnreadableFrame, OfTwoRanksNamesTheLowest) {
  for (const ExchangeCase& setup : {ExchangeCase{"server"}, {"server", true}, {"sharded"}, {"sharded", true}}) {
    for (const std::vector<int>& ranks : {std::vector{3}, {1, 2}, {3, 2}, {1, 2, 3}}) {
      SCOPED_TRACE(setup.name() + ", " + ::testing::PrintToString(ranks));
      const Plan plan = bodies::plan_of("topk:ratio=0.1", setup);
      const int lowest = *std::min_element(ranks.begin(), ranks.end());
      std::atomic<int> thrown = 0;
      run_on_threads(4, [&](Transport& transport) {
        DamagingTransport damaging(transport);
        Runner run(plan, damaging);
        run.step(0);
        if (transport.rank() == 0) damaging.ranks = ranks;
        try {
          run.step(1);
        } catch (const TransportError& error) {
          EXPECT_EQ(error.rank(), lowest);
          ++thrown;
        }
        EXPECT_TRUE(damaging.ranks.empty());
        EXPECT_THROW(run.step(2), UsageError);
      });
      EXPECT_EQ(thrown, 4);
    }
  }
}

// ---- Replicas that differ ----

// What one rank got.
struct Seen {
  std::string text;         // of ReplicasDiffer, or ""
  std::uint64_t steps = 0;  // done by then
};

// Up to 12 steps. In the step number `tampered` (from 1) one bit of a message to `victim` is flipped.
std::vector<Seen> run_tampered(const Plan& plan, int ranks, int victim, std::uint64_t tampered) {
  std::vector<Seen> all(static_cast<std::size_t>(ranks));
  run_on_threads(ranks, [&](Transport& transport) {
    TamperingTransport tampering(transport);
    tampering.has_servers = plan.config.exchange != "allgather";
    Runner run(plan, tampering);
    Seen& seen = all[static_cast<std::size_t>(transport.rank())];
    try {
      for (std::uint64_t t = 0; t < 12; ++t) {
        tampering.begin_step(transport.rank() == victim && t + 1 == tampered);
        seen.steps = t + 1;
        run.step(t);
      }
    } catch (const ReplicasDiffer& error) {
      seen.text = error.what();
    }
    EXPECT_EQ(tampering.flipped(), transport.rank() == victim ? 1 : 0) << plan.name();
  });
  return all;
}

TEST(ReplicasThatDiffer, AreFoundAtTheNextCheckOnAllRanks) {
  for (const ExchangeCase& setup :
       {ExchangeCase{"allgather"}, {"server"}, {"server", true}, {"sharded"}, {"sharded", true}}) {
    for (const int victim : {1, 2}) {
      for (const std::uint64_t tampered : {4U, 6U, 8U}) {
        Plan plan = bodies::plan_of("topk:ratio=0.1", setup);
        plan.config.check_every = 4;
        const std::uint64_t found = (tampered + 3) / 4 * 4;
        for (const Seen& seen : run_tampered(plan, 4, victim, tampered)) {
          EXPECT_THAT(seen.text, HasSubstr("rank " + std::to_string(victim)))
              << setup.name() << ", a bit in step " << tampered;
          EXPECT_EQ(seen.steps, found) << setup.name() << ", a bit in step " << tampered;
        }
      }
    }
  }
}

TEST(ReplicasThatDiffer, AreNotComparedIfCheckEveryIsZero) {
  for (const ExchangeCase& setup : {ExchangeCase{"allgather"}, {"server", true}, {"sharded", true}}) {
    Plan plan = bodies::plan_of("topk:ratio=0.1", setup);
    plan.config.check_every = 0;
    for (const Seen& seen : run_tampered(plan, 3, 1, 5)) {
      EXPECT_EQ(seen.text, "");
      EXPECT_EQ(seen.steps, 12U);
    }
  }
}

// ---- Calls that fail ----

// Throws instead of making the call number `failing` (from 0).
class FailingTransport final : public WrappedTransport {
 public:
  using WrappedTransport::WrappedTransport;
  int calls = 0;
  int failing = -1;

  void do_send_receive(std::span<const Outgoing> out, std::span<const Incoming> in) override {
    count();
    WrappedTransport::do_send_receive(out, in);
  }
  void do_all_reduce_sum(WritableNumbers numbers) override {
    count();
    WrappedTransport::do_all_reduce_sum(numbers);
  }

 private:
  void count() {
    if (calls++ == failing) throw TransportError("the link is down", 0);
  }
};

// The step is the last of the calibration, so that thresholds are voted on, and replicas are compared in every step: a
// call for each of these, after those of the exchange.
TEST(AWorkerWhoseTransportFailed, IsNotUsedAgainWhicheverCallFailed) {
  for (const char* sparsifier : {"topk:ratio=0.1", "threshold:ratio=0.1,calibrate=2"}) {
    for (const ExchangeCase& setup : bodies::every_exchange_case()) {
      Plan plan = bodies::plan_of(sparsifier, setup);
      plan.config.check_every = 1;
      int calls = 1;  // in a step
      for (int failing = 0; failing < calls; ++failing) {
        SCOPED_TRACE(plan.name() + ", call " + std::to_string(failing));
        Meeting all(3);
        run_on_threads(3, all.watched([&](Transport& transport) {
          FailingTransport link(transport);
          Runner run(plan, link);
          run.step(0);
          if (failing == 0) {  // count the calls of a step
            Runner twin(plan, link);
            twin.step(0);
            link.calls = 0;
            twin.step(1);
            if (transport.rank() == 0) calls = link.calls;
          }
          all.arrive_and_wait();  // one that fails tells the others, who may still be in the steps above
          link.calls = 0;
          link.failing = failing;
          EXPECT_THROW(run.step(1), TransportError);
          EXPECT_THROW(run.worker.save(), UsageError);
          EXPECT_THROW(run.step(2), UsageError);
        }));
      }
      const bool votes = std::string(sparsifier).starts_with("threshold");
      const bool server_votes = votes && setup.downlink && setup.exchange == "sharded";
      EXPECT_GE(calls, 2 + (votes ? 1 : 0) + (server_votes ? 1 : 0)) << plan.name();
    }
  }
}

// Nothing is missing from a step after which replicas were found to differ.
TEST(ReplicasThatDiffer, DoNotKeepAWorkerFromBeingSaved) {
  Plan plan = bodies::plan_of("topk:ratio=0.1", {"allgather"});
  plan.config.check_every = 1;
  run_on_threads(3, [&](Transport& transport) {
    TamperingTransport tampering(transport);
    Runner run(plan, tampering);
    tampering.begin_step(transport.rank() == 1);
    EXPECT_THROW(run.step(0), ReplicasDiffer);
    EXPECT_NO_THROW(run.worker.save());
  });
}

// ---- Ranks that are lost ----

TEST(ARankThatThrowsBetweenSteps, IsNamedInTheErrorsOfAllOthers) {
  for (const ExchangeCase& setup : bodies::every_exchange_case()) {
    for (const int lost : {0, 1, 3}) {
      SCOPED_TRACE(setup.name() + " without rank " + std::to_string(lost));
      const Plan plan = bodies::plan_of("topk:ratio=0.1", setup);
      std::atomic<int> thrown = 0;
      const auto body = [&](Transport& transport) {
        Runner run(plan, transport);
        try {
          for (std::uint64_t t = 0; t < 10; ++t) {
            if (t == 3 && transport.rank() == lost) throw std::runtime_error("the disk is full");
            run.step(t);
          }
        } catch (const TransportError& error) {
          EXPECT_EQ(error.rank(), lost);
          EXPECT_THAT(error.what(), HasSubstr("rank " + std::to_string(lost)));
          EXPECT_LE(run.worker.stats().step, 3U);
          ++thrown;
          throw;
        }
      };
      EXPECT_THROW(run_on_threads(4, body), std::runtime_error);
      EXPECT_EQ(thrown, 3);
    }
  }
}

TEST(ARankThatEndsEarly, IsNamedInTheErrorsOfAllOthers) {
  for (const ExchangeCase& setup : bodies::every_exchange_case()) {
    const Plan plan = bodies::plan_of("topk:ratio=0.1", setup);
    std::atomic<int> thrown = 0;
    run_on_threads(3, [&](Transport& transport) {
      Runner run(plan, transport);
      try {
        for (std::uint64_t t = 0; t < (transport.rank() == 1 ? 3U : 5U); ++t) run.step(t);
      } catch (const TransportError& error) {
        EXPECT_EQ(error.rank(), 1) << setup.name();
        ++thrown;
      }
    });
    EXPECT_EQ(thrown, 2) << setup.name();
  }
}

}  // namespace
}  // namespace sparsewire::exchange_failure_test
