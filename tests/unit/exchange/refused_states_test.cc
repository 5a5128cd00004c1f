// States of workers that are refused: damaged, shuffled, forged, of other options. Nothing changes then. Ranks are
// threads.
#include <gtest/gtest.h>

#include "sparsewire/support/crc32c.h"
#include "unit/exchange_cases.h"
#include "unit/saved_run.h"

namespace sparsewire::refused_states_test {
namespace {

using bodies::Bytes;
using bodies::ExchangeCase;
using bodies::Plan;
using bodies::Runner;

struct Damage {
  std::string name;
  std::function<void(std::vector<Bytes>&)> apply;
};

std::vector<Damage> every_damage() {
  return {
      {"none", [](auto& states) { states.clear(); }},
      {"the first is missing", [](auto& states) { states.erase(states.begin()); }},
      {"the last is missing", [](auto& states) { states.pop_back(); }},
      {"one is there twice", [](auto& states) { states[1] = states[0]; }},
      {"one too many", [](auto& states) { states.push_back(states[0]); }},
      {"two are swapped", [](auto& states) { std::swap(states[0], states[2]); }},
      {"one is empty", [](auto& states) { states[2].clear(); }},
      {"one is cut off", [](auto& states) { states[2].resize(states[2].size() / 2); }},
      {"one lacks a byte", [](auto& states) { states[0].pop_back(); }},
      {"one has a byte more", [](auto& states) { states[0].push_back(std::byte{0}); }},
      {"a bit in the first", [](auto& states) { states[0][states[0].size() / 2] ^= std::byte{4}; }},
      {"a bit in the last", [](auto& states) { states[2][states[2].size() / 3] ^= std::byte{1}; }},
      {"rubbish", [](auto& states) { states[1].assign(1000, std::byte{0x5A}); }},
  };
}

// The state with other data in a field, and a valid checksum (docs/reference/state_format.md).
Bytes with_field(const Bytes& state, std::string_view field, std::span<const std::byte> data) {
  const std::string old(reinterpret_cast<const char*>(state.data()), state.size());
  const auto as_text = [](const auto& number) {
    return std::string(reinterpret_cast<const char*>(&number), sizeof number);
  };
  std::string fields;
  bool found = false;
  for (std::size_t at = 16; at + 4 < old.size();) {
    const std::string name = old.substr(at + 1, static_cast<unsigned char>(old[at]) & 0x7FU);  // 0x80: optional
    std::uint64_t size = 0;
    std::memcpy(&size, &old[at + 1 + name.size()], 8);
    std::string body = old.substr(at + 9 + name.size(), size);
    if (name == field) {
      body.assign(reinterpret_cast<const char*>(data.data()), data.size());
      found = true;
    }
    fields += old[at] + name + as_text(std::uint64_t{body.size()}) + body;
    at += 9 + name.size() + size;
  }
  EXPECT_TRUE(found) << field;
  std::string changed = old.substr(0, 8) + as_text(std::uint64_t{fields.size()}) + fields;
  changed += as_text(crc32c(std::as_bytes(std::span(changed))));
  const auto bytes = std::as_bytes(std::span(changed));
  return {bytes.begin(), bytes.end()};
}

template <class Number>
Bytes with_field(const Bytes& state, std::string_view field, const Number& number) {
  return with_field(state, field, std::as_bytes(std::span(&number, 1)));
}

// load() throws on every rank and changes nothing: the workers' states and next steps are the same.
void check_refused(const Plan& plan, int ranks, const std::vector<Bytes>& states, const std::string& what) {
  run_on_threads(ranks, [&](Transport& transport) {
    Runner run(plan, transport);
    Runner twin(plan, transport);
    for (std::uint64_t t = 50; t < 53; ++t) run.step(t), twin.step(t);
    const Bytes before = run.worker.save();
    EXPECT_THROW(run.worker.load(states), UsageError) << what << ", rank " << transport.rank() << " of " << ranks;
    EXPECT_EQ(run.worker.save(), before) << what;
    for (std::uint64_t t = 53; t < 56; ++t) run.step(t), twin.step(t);
    EXPECT_EQ(run.sum, twin.sum) << what;
  });
}

TEST(SavedWorkers, AreRefusedIfDamagedMissingOrShuffled) {
  for (const ExchangeCase& setup : bodies::every_exchange_case()) {
    Plan plan = bodies::plan_of("topk:ratio=0.05", setup);
    plan.layout = 101;
    const SavedRun saved = run_and_save(plan, 3, 4);
    for (const Damage& damage : every_damage()) {
      std::vector<Bytes> states = saved.states;
      damage.apply(states);
      for (const int ranks : {1, 3, 4}) {
        ASSERT_NO_FATAL_FAILURE(check_refused(plan, ranks, states, setup.name() + ", " + damage.name));
      }
    }
  }
}

TEST(SavedWorkers, AreRefusedIfTheyAreOfDifferentSteps) {
  for (const ExchangeCase& setup : {ExchangeCase{"allgather"}, {"sharded", true}}) {
    Plan plan = bodies::plan_of("topk:ratio=0.05", setup);
    plan.layout = 101;
    std::vector<Bytes> states = run_and_save(plan, 3, 4).states;
    states[2] = run_and_save(plan, 3, 6).states[2];
    for (const int ranks : {2, 3})
      ASSERT_NO_FATAL_FAILURE(check_refused(plan, ranks, states, setup.name() + ", mixed"));
  }
}

// After as many steps, with other gradients: all ranks of one run have the same checksum of its updates.
TEST(SavedWorkers, AreRefusedIfTheyAreOfDifferentRuns) {
  for (const ExchangeCase& setup : {ExchangeCase{"allgather"}, {"sharded", true}}) {
    Plan plan = bodies::plan_of("topk:ratio=0.05", setup);
    plan.layout = 101;
    plan.config.check_every = 1;
    std::vector<Bytes> states = run_and_save(plan, 3, 4).states;
    plan.seed += 1;
    states[1] = run_and_save(plan, 3, 4).states[1];
    for (const int ranks : {1, 2, 3}) {
      ASSERT_NO_FATAL_FAILURE(check_refused(plan, ranks, states, setup.name() + ", another run"));
    }
  }
}

// States with valid checksums that no worker can have saved. They are refused before memory is allocated for the sizes
// that they claim.
TEST(SavedWorkers, AreRefusedIfTheyAreForged) {
  for (const ExchangeCase& setup : {ExchangeCase{"allgather"}, {"sharded", true}}) {
    Plan plan = bodies::plan_of("topk:ratio=0.05", setup);
    plan.layout = 101;
    const std::vector<Bytes> good = run_and_save(plan, 2, 4).states;
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (const float weight : {nan, -1.0F, 2.0F, 0.9F, std::numeric_limits<float>::infinity()}) {
      std::vector<Bytes> states = good;
      states[1] = with_field(states[1], "worker_weight", weight);
      for (const int ranks : {1, 2}) ASSERT_NO_FATAL_FAILURE(check_refused(plan, ranks, states, "a weight"));
    }
    std::vector<Bytes> states = good;
    for (Bytes& state : states) state = with_field(state, "worker_step", std::uint64_t{5});
    for (const int ranks : {1, 2}) ASSERT_NO_FATAL_FAILURE(check_refused(plan, ranks, states, "a step"));
    states = good;
    for (Bytes& state : states) state = with_field(state, "tensor_sizes", std::uint64_t{4'000'000'000});
    for (const int ranks : {1, 2}) ASSERT_NO_FATAL_FAILURE(check_refused(plan, ranks, states, "a size"));
  }
}

// Only the server's part of rank 2 is damaged, and only rank 2 of three reads it. It takes back what it had loaded by
// then.
TEST(SavedWorkers, AreRefusedIfOnlyAServersPartIsDamaged) {
  Plan plan = bodies::plan_of("topk:ratio=0.05", {"sharded", true});
  plan.layout = 101;
  std::vector<Bytes> states = run_and_save(plan, 3, 4).states;
  states[2] = with_field(states[2], "server", std::span<const std::byte>(Bytes(400)));
  run_on_threads(3, [&](Transport& transport) {
    Runner run(plan, transport);
    run.step(0);
    const Bytes before = run.worker.save();
    if (transport.rank() == 2) {
      EXPECT_THROW(run.worker.load(states), UsageError);
      EXPECT_EQ(run.worker.save(), before);
    } else {
      EXPECT_NO_THROW(run.worker.load(states));
    }
  });
  ASSERT_NO_FATAL_FAILURE(check_refused(plan, 2, states, "a server's part"));
}

// At entry 7 the server owes 1.5e38 and each worker 3e38: too much for the memory of a worker that takes over both.
TEST(SavedWorkers, AreRefusedIfWhatIsOwedIsTooLargeForAFloat) {
  Plan plan = bodies::plan_of("topk:k=1", {"server", true});
  plan.layout = 20;
  plan.weights.clear();
  std::vector<Bytes> states(2);
  run_on_threads(2, [&](Transport& transport) {
    Runner run(plan, transport);
    run.gradient[transport.rank() == 0 ? 5 : 7] = 3e38F;
    run.step();  // the server sends entry 5
    std::fill(run.gradient.begin(), run.gradient.end(), 0.0F);
    run.gradient[7] = 3e38F;
    run.gradient[9] = 3.1e38F;
    run.step();  // all send entry 9
    states[static_cast<std::size_t>(transport.rank())] = run.worker.save();
  });
  for (const char* exchange : {"allgather", "server", "sharded", "auto"}) {
    Plan next = plan;
    next.config.exchange = exchange;
    next.config.downlink = "";
    for (const int ranks : {1, 2, 3}) ASSERT_NO_FATAL_FAILURE(check_refused(next, ranks, states, exchange));
  }
  // Where servers take it over, each has room for its part.
  for (const char* exchange : {"server", "sharded"}) {
    Plan next = plan;
    next.config.exchange = exchange;
    run_on_threads(3, [&](Transport& transport) {
      Runner run(next, transport);
      EXPECT_NO_THROW(run.worker.load(states));
    });
  }
}

TEST(SavedWorkers, AreRefusedUnderOtherOptions) {
  for (const ExchangeCase& setup : {ExchangeCase{"allgather"}, {"sharded", true}}) {
    Plan plan = bodies::plan_of("topk:ratio=0.05", setup);
    plan.layout = 101;
    const std::vector<Bytes> states = run_and_save(plan, 3, 4).states;
    for (const int ranks : {2, 3}) {
      Plan other = plan;
      other.config.sparsifier = "topk:ratio=0.06";
      ASSERT_NO_FATAL_FAILURE(check_refused(other, ranks, states, "another ratio"));
      other = plan;
      other.config.feedback = "none";
      ASSERT_NO_FATAL_FAILURE(check_refused(other, ranks, states, "another feedback"));
      other = plan;
      other.layout = 102;
      ASSERT_NO_FATAL_FAILURE(check_refused(other, ranks, states, "another layout"));
    }
  }
}

}  // namespace
}  // namespace sparsewire::refused_states_test
