// States that workers of version 0.1.0 saved are loaded, and workers continue with the same bits as those did.
#include "unit/old_states.h"

#include <gtest/gtest.h>

#include <mutex>

#include "sparsewire/worker.h"
#include "unit/bits.h"

namespace sparsewire::old_states_test {
namespace {

SparseVector step_of(Worker& worker, int step, int rank) {
  const std::vector<float> gradient = old_state::gradient_of(step, rank);
  return worker.step(gradient, {.lr = old_state::lr_of(step)});
}

// What the workers did after the state was saved.
struct Continued {
  std::vector<SparseVector> updates;                  // of rank 0
  std::vector<std::vector<float>> memories;           // of all ranks
  std::vector<double> owed;                           // by the servers
  std::vector<std::vector<std::byte>> saved_at_once;  // of all ranks, after loading
};

Continued run_from(const WorkerConfig& config, const std::vector<std::vector<std::byte>>& states) {
  Continued result;
  result.memories.resize(old_state::kRanks);
  result.owed.resize(old_state::layout().dim());
  result.saved_at_once.resize(old_state::kRanks);
  std::mutex mutex;
  run_on_threads(old_state::kRanks, [&](Transport& transport) {
    const int rank = transport.rank();
    const auto place = static_cast<std::size_t>(rank);
    WorkerConfig mine = config;
    mine.weight = rank == 1 ? 2 : 1;
    mine.seed = 6;
    mine.check_every = 1;
    Worker worker(mine, old_state::layout(), transport);
    worker.load(states);
    result.saved_at_once[place] = worker.save();
    for (int i = 0; i < old_state::kStepsAfter; ++i) {
      const SparseVector update = step_of(worker, old_state::kStepsBefore + i, rank);
      if (rank == 0) result.updates.push_back(update);
    }
    result.memories[place] = worker.memory();
    const std::lock_guard lock(mutex);
    worker.add_server_memory(result.owed);
  });
  return result;
}

struct Saved {
  explicit Saved(const std::string& path) : file(path) {
    for (std::string* spec : {&config.sparsifier, &config.feedback, &config.exchange, &config.codec, &config.downlink,
                              &config.downlink_codec}) {
      *spec = file.text();
    }
    for (int rank = 0; rank < old_state::kRanks; ++rank) states.push_back(old_state::read_state(file));
  }

  old_state::Reader file;  // what follows the states is not read yet
  WorkerConfig config;
  std::vector<std::vector<std::byte>> states;  // of all ranks
};

void expect_as_before(const Continued& actual, old_state::Reader& file) {
  ASSERT_EQ(actual.updates.size(), std::size_t{old_state::kStepsAfter});
  for (int i = 0; i < old_state::kStepsAfter; ++i) {
    SCOPED_TRACE("step " + std::to_string(old_state::kStepsBefore + i));
    EXPECT_TRUE(same_bits(old_state::read_entries(file), actual.updates[static_cast<std::size_t>(i)]));
  }
  for (const std::vector<float>& memory : actual.memories) EXPECT_TRUE(same_bits(file.array<float>(), memory));
  const auto owed = file.array<double>();
  EXPECT_EQ(owed.empty() ? std::vector<double>(actual.owed.size()) : owed, actual.owed);
  EXPECT_TRUE(file.is_at_end());
}

TEST(OldWorkerStates, ContinueWithTheSameBits) {
  const std::vector<std::string> paths = old_state::files_of("worker_");
  ASSERT_EQ(paths.size(), 15U);
  for (const std::string& path : paths) {
    SCOPED_TRACE(path);
    Saved saved(path);
    expect_as_before(run_from(saved.config, saved.states), saved.file);
  }
}

TEST(OldWorkerStates, ContinueWithTheSameBitsAfterTheyWereSavedInThePresentVersion) {
  for (const std::string& path : old_state::files_of("worker_")) {
    SCOPED_TRACE(path);
    Saved saved(path);
    const Continued first = run_from(saved.config, saved.states);
    expect_as_before(run_from(saved.config, first.saved_at_once), saved.file);
  }
}

// Not bit for bit: what is owed to the weights stays the same, and the next steps work.
TEST(OldWorkerStates, AreTakenOverByAnotherExchange) {
  for (const std::string& path : old_state::files_of("worker_s")) {
    SCOPED_TRACE(path);
    Saved saved(path);
    saved.config.exchange = "allgather";
    saved.config.downlink = saved.config.downlink_codec = "";
    EXPECT_NO_THROW(run_from(saved.config, saved.states));
  }
}

}  // namespace
}  // namespace sparsewire::old_states_test
