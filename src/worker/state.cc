// The saved state of a worker, and how other workers take over what the old ones have not sent yet.
#include "sparsewire/state.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "sparsewire/errors.h"
#include "sparsewire/support/float_mode.h"
#include "worker/parts.h"

namespace sparsewire {

// The contents of a saved state.
struct SavedWorker {
  std::uint32_t rank = 0;
  std::uint32_t ranks = 0;
  float weight = 0;
  std::uint64_t step = 0;
  Layout layout;
  std::string exchange;
  std::string downlink;
  bool goes_dense = false;
  std::uint32_t checksum = 0;
  std::vector<std::byte> sifter;
  std::vector<std::byte> server;  // empty: this rank had no server's memory
  std::uint8_t server_drops = 0;  // 1: its feedback was none

  void serialize(State& state) {
    state.value("worker_rank", rank);
    state.value("worker_ranks", ranks);
    state.value("worker_weight", weight);
    state.value("worker_step", step);
    layout = serialize_layout(state, layout);
    state.string("exchange", exchange);
    state.string("downlink", downlink);
    state.flag("goes_dense", goes_dense);
    state.value("checksum", checksum);
    state.array("sifter", sifter);
    state.array("server", server);
    state.optional_value("drops_unsent", server_drops);
  }
};

namespace {

// SavedWorker::server_drops of a worker with these options.
std::uint8_t server_drops(const WorkerConfig& config) {
  return !config.downlink.empty() && parse_feedback(config.downlink_feedback).kind == Feedback::Kind::none ? 1 : 0;
}

SavedWorker read(std::span<const std::byte> bytes, std::size_t rank, std::size_t ranks) {
  State state(bytes);
  SavedWorker saved;
  saved.serialize(state);
  state.finish();
  if (saved.rank != rank || saved.ranks != ranks) {
    throw UsageError(
        fmt::format("[state] state {} of {} was saved by rank {} of {}: give the states of all ranks, in "
                    "rank order",
                    rank, ranks, saved.rank, saved.ranks));
  }
  // Checked before memory is allocated for the entries: each has a float in the sifter's part.
  if (saved.sifter.size() / sizeof(float) < saved.layout.dim()) {
    throw UsageError(fmt::format("[state] the state of rank {} is too short for {} entries", rank, saved.layout.dim()));
  }
  if (!(saved.weight >= 0 && saved.weight <= 1)) {
    throw UsageError(fmt::format("[state] the weight of rank {}, {}, is not in [0, 1]", rank, saved.weight));
  }
  return saved;
}

// The states of all ranks, in rank order. Throws UsageError if they were not saved together.
std::vector<SavedWorker> read_all(std::span<const std::vector<std::byte>> states) {
  if (states.empty()) throw UsageError("[state] no states were given to load: give those of all ranks");
  std::vector<SavedWorker> saved;
  double weights = 0;
  for (std::size_t r = 0; r < states.size(); ++r) {
    saved.push_back(read(states[r], r, states.size()));
    weights += static_cast<double>(saved[r].weight);
    if (saved[r].step != saved[0].step) {
      throw UsageError(
          fmt::format("[state] rank {} saved its state after {} steps, rank 0 after {}: give states of the "
                      "same step",
                      r, saved[r].step, saved[0].step));
    }
    if (saved[r].layout != saved[0].layout || saved[r].exchange != saved[0].exchange ||
        saved[r].downlink != saved[0].downlink) {
      throw UsageError(
          fmt::format("[state] the states of rank {} and rank 0 are from different runs: their layout, "
                      "exchange or downlink differ",
                      r));
    }
    if (saved[r].checksum != saved[0].checksum) {
      throw UsageError(fmt::format(
          "[state] the states of rank {} and rank 0 are from different runs: the updates of all steps differ", r));
    }
  }
  if (!(std::abs(weights - 1) < 1e-3)) {
    throw UsageError(fmt::format("[state] the weights of all ranks add up to {}, not to 1", weights));
  }
  return saved;
}

// The state of one rank of several, for that rank. Throws UsageError unless it can continue from it bit for bit: for
// anything else the states of all ranks are needed.
SavedWorker read_own(std::span<const std::byte> bytes, std::size_t rank, const std::vector<float>& weights,
                     const WorkerConfig& config, const Layout& layout) {
  SavedWorker saved = read(bytes, rank, weights.size());
  if (saved.exchange != config.exchange || saved.downlink != config.downlink || saved.layout != layout ||
      saved.server_drops != server_drops(config) || saved.weight != weights[rank]) {
    throw UsageError(
        "[state] weight, exchange, downlink or layout are others than when this state was saved: give the states of "
        "all "
        "ranks");
  }
  return saved;
}

// The number of ranks of a run, by the state of one of them.
std::size_t ranks_of(std::span<const std::byte> bytes) {
  State state(bytes);
  std::uint32_t ranks = 0;
  state.value("worker_ranks", ranks);
  return ranks;
}

// Whether every worker can continue bit for bit from its own state.
bool is_as_before(const std::vector<SavedWorker>& saved, const std::vector<float>& weights, const WorkerConfig& config,
                  const Layout& layout) {
  const auto fits = [&](const SavedWorker& one) {
    return one.exchange == config.exchange && one.downlink == config.downlink &&
           one.server_drops == server_drops(config) && one.layout == layout && one.weight == weights[one.rank];
  };
  return saved.size() == weights.size() && std::all_of(saved.begin(), saved.end(), fits);
}

// A transport that knows its place among the ranks, and moves nothing.
class PlaceOnly final : public Transport {
 public:
  PlaceOnly(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }

 private:
  void do_send_receive(std::span<const Outgoing> /*out*/, std::span<const Incoming> /*in*/) override {
    throw std::logic_error("a saved exchange moves nothing");
  }

  int rank_;
  int size_;
};

// Of all old servers together.
struct OldServers {
  std::vector<double> owed;  // what they had not sent yet, for each entry of the old layout
  double total_error = 0;
};

OldServers read_old_servers(const std::vector<SavedWorker>& saved) {
  const std::uint64_t dim = saved[0].layout.dim();
  OldServers all{.owed = std::vector<double>(dim)};
  for (std::size_t r = 0; r < saved.size(); ++r) {
    const SavedWorker& old = saved[r];
    if (old.server.empty()) continue;
    // The exchange that the old rank had knows which entries it served.
    PlaceOnly place(static_cast<int>(r), static_cast<int>(saved.size()));
    ExchangePlan plan;
    plan.dim = dim;
    plan.weights.resize(saved.size());
    plan.config.exchange = old.exchange;
    plan.config.downlink = old.downlink;
    if (old.server_drops != 0) plan.config.downlink_feedback = "none";
    plan.config.downlink_codec = plan.config.codec;
    const std::unique_ptr<Exchange> exchange = make_exchange(old.exchange, plan, place);
    Sifter* const server = exchange->server();
    const std::uint64_t served = server == nullptr ? 0 : server->layout().dim();
    if (server == nullptr || old.server.size() / sizeof(float) < served) {
      throw UsageError(fmt::format("[state] the server's part of rank {} is too short for {} entries", r, served));
    }
    server->load(old.server);
    all.total_error += server->stats().total_error;
    if (old.server_drops != 0) continue;
    const std::vector<float> memory = server->memory();
    for (std::uint32_t i = 0; i < memory.size(); ++i) {
      all.owed[exchange->served_index(i)] += static_cast<double>(memory[i]);
    }
  }
  return all;
}

// What is owed, for each entry of the new layout.
std::vector<double> rearranged(const std::vector<double>& old, const Layout& old_layout, const Layout& layout) {
  std::vector<double> owed(layout.dim());
  for (const TensorRange& tensor : layout.tensors()) {
    const TensorRange* const from = old_layout.find(tensor.name);
    if (from == nullptr || from->size != tensor.size) continue;  // loading the workers' memories refuses that
    std::copy_n(old.data() + from->begin, tensor.size, owed.data() + tensor.begin);
  }
  return owed;
}

// Sums of finite floats may be too large for a float. Throws UsageError; all ranks find the same.
void check_range(const std::vector<double>& numbers, const char* what) {
  const auto is_too_large = [](double number) {
    return !(std::abs(number) <= static_cast<double>(std::numeric_limits<float>::max()));
  };
  const auto found = std::find_if(numbers.begin(), numbers.end(), is_too_large);
  if (found == numbers.end()) return;
  throw UsageError(
      fmt::format("[state] {} of the saved workers adds up to {} at index {}, which is too large for a "
                  "float: load the states with the number of workers, weights, exchange and downlink with "
                  "which they were saved",
                  what, *found, found - numbers.begin()));
}

std::vector<float> as_floats(const std::vector<double>& numbers) {
  std::vector<float> floats(numbers.size());
  std::transform(numbers.begin(), numbers.end(), floats.begin(),
                 [](double number) { return static_cast<float>(number); });
  return floats;
}

}  // namespace

// What is owed to the weights must not change: sum_i w_i e_i + E. So every new worker begins with the weighted sum of
// the old memories. The new servers take over what the old ones owe; if there are no new ones, the workers do. The
// total errors go with them.
void Worker::Parts::redistribute(const std::vector<SavedWorker>& saved) {
  std::vector<double> owed(layout.dim());
  std::vector<double> velocity(sifter.velocity().size());
  double total_error = 0;
  Sifter old(config.sparsifier, config.feedback, make_context(config, layout));
  for (const SavedWorker& one : saved) {
    old.load(one.sifter);
    const auto weight = static_cast<double>(one.weight);
    const std::vector<float> old_memory = old.memory();
    const std::vector<float> old_velocity = old.velocity();
    for (std::size_t i = 0; i < owed.size(); ++i) owed[i] += weight * static_cast<double>(old_memory[i]);
    for (std::size_t i = 0; i < velocity.size(); ++i) velocity[i] += weight * static_cast<double>(old_velocity[i]);
    total_error += weight * old.stats().total_error;
  }
  const OldServers old_servers = read_old_servers(saved);
  const std::vector<double> served = rearranged(old_servers.owed, saved[0].layout, layout);
  const bool servers_keep = !config.downlink.empty() && server_drops(config) == 0;
  if (!servers_keep) {
    for (std::size_t i = 0; i < owed.size(); ++i) owed[i] += served[i];
  }
  check_range(owed, "the error memory");
  check_range(velocity, "the velocity");
  check_range(served, "the servers' memory");
  Sifter* const server = exchange->server();
  if (server != nullptr) {
    const bool is_same = saved[0].downlink == config.downlink && saved[0].server_drops == server_drops(config);
    if (is_same && !saved[0].server.empty()) server->inherit(saved[0].server);
    std::vector<float> numbers(server->layout().dim());
    for (std::uint32_t i = 0; servers_keep && i < numbers.size(); ++i) {
      numbers[i] = static_cast<float>(served[exchange->served_index(i)]);
    }
    server->write_memory(numbers);
    server->write_total_error(old_servers.total_error / (exchange->has_many_servers() ? transport.size() : 1));
  }
  sifter.load(saved[0].sifter);
  sifter.write_memory(as_floats(owed));
  sifter.write_total_error(total_error);
  if (!velocity.empty()) sifter.write_velocity(as_floats(velocity));
  forget_last_round();
}

void Worker::Parts::forget_last_round() {
  if (!observes) return;
  sifter.observe({.dim = layout.dim(), .indices = {}, .values = {}, .draw = {}}, {});
}

std::vector<std::byte> Worker::save() const {
  const Parts& p = *parts_;
  if (!p.usable) {
    throw UsageError(
        fmt::format("[worker] step {} was not completed, so this worker cannot be saved: create a new one "
                    "and load a state that was saved earlier",
                    p.step_number));
  }
  p.check_between_steps("save");
  SavedWorker saved{.rank = static_cast<std::uint32_t>(p.transport.rank()),
                    .ranks = static_cast<std::uint32_t>(p.transport.size()),
                    .weight = p.weights[static_cast<std::size_t>(p.transport.rank())],
                    .step = p.sifter.step(),
                    .layout = p.layout,
                    .exchange = p.config.exchange,
                    .downlink = p.config.downlink,
                    .goes_dense = p.goes_dense,
                    .checksum = p.checksum,
                    .sifter = p.sifter.save(),
                    .server = {},
                    .server_drops = server_drops(p.config)};
  if (const Sifter* const server = p.exchange->server()) saved.server = server->save();
  State state;
  saved.serialize(state);
  return std::move(state).bytes();
}

void Worker::load(std::span<const std::vector<std::byte>> states) {
  const StandardFloatMode mode;
  Parts& p = *parts_;
  p.check_between_steps("load");
  const auto rank = static_cast<std::size_t>(p.transport.rank());
  const bool is_own = states.size() == 1 && p.weights.size() > 1 && ranks_of(states[0]) == p.weights.size();
  std::vector<SavedWorker> saved;
  if (is_own) {
    saved.push_back(read_own(states[0], rank, p.weights, p.config, p.layout));
  } else {
    saved = read_all(states);
  }
  const std::vector<std::byte> sifter_before = p.sifter.save();
  Sifter* const server = p.exchange->server();
  const std::vector<std::byte> server_before = server == nullptr ? std::vector<std::byte>() : server->save();
  const bool as_before = is_own || is_as_before(saved, p.weights, p.config, p.layout);
  try {
    if (as_before) {
      const SavedWorker& mine = saved[is_own ? 0 : rank];
      p.sifter.load(mine.sifter);
      if (server != nullptr) server->load(mine.server);
    } else {
      p.redistribute(saved);
    }
    if (p.sifter.step() != saved[0].step) {
      throw UsageError(fmt::format("[state] the worker was saved after {} steps, but its sifter after {}",
                                   saved[0].step, p.sifter.step()));
    }
  } catch (...) {  // a part may have been loaded
    p.sifter.load(sifter_before);
    if (server != nullptr) server->load(server_before);
    throw;
  }
  if (p.counts_vary) p.goes_dense = p.dense_exchange != nullptr && saved[0].goes_dense;
  p.checksum = saved[0].checksum;
  p.total.clear(p.layout.dim());
  p.sum = nullptr;
  p.stats = {};
  p.can_take_back = false;
}

}  // namespace sparsewire
