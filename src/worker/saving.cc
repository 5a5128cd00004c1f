// A worker's state, and how another number of workers shares out what the old ones still owe.
#include <algorithm>

#include "core/state.h"
#include "core/text.h"
#include "exchange/regions.h"
#include "sparsewire/errors.h"
#include "worker/parts.h"

namespace sparsewire {
namespace {

// What is in a saved state.
struct Saved {
  std::uint32_t rank = 0;
  std::uint32_t ranks = 0;
  float weight = 0;
  std::string exchange;
  std::string downlink;
  std::vector<std::byte> sifter;
  std::vector<std::byte> server;  // empty: this rank had no memory to serve from

  void transfer(State& state) {
    state.value("worker_rank", rank);
    state.value("worker_ranks", ranks);
    state.value("worker_weight", weight);
    state.string("exchange", exchange);
    state.string("downlink", downlink);
    state.array("sifter", sifter);
    state.array("server", server);
  }
};

Saved read(std::span<const std::byte> bytes, std::size_t rank, std::size_t ranks) {
  State state(bytes);
  Saved saved;
  saved.transfer(state);
  state.finish();
  if (saved.rank != rank || saved.ranks != ranks) {
    throw UsageError(text("[state] number ", rank, " of ", ranks, " is of rank ", saved.rank, " of ", saved.ranks));
  }
  return saved;
}

}  // namespace

std::vector<std::byte> Worker::save() const {
  const Parts& p = *parts_;
  Saved saved{.rank = static_cast<std::uint32_t>(p.transport.rank()),
              .ranks = static_cast<std::uint32_t>(p.transport.size()),
              .weight = p.weights[static_cast<std::size_t>(p.transport.rank())],
              .exchange = p.config.exchange,
              .downlink = p.config.downlink,
              .sifter = p.sifter.save(),
              .server = {}};
  if (const Sifter* const server = p.exchange->server()) saved.server = server->save();
  State state;
  saved.transfer(state);
  return std::move(state).bytes();
}

void Worker::load(std::span<const std::vector<std::byte>> states) {
  Parts& p = *parts_;
  if (states.empty()) throw UsageError("[state] there is none to load");
  std::vector<Saved> saved;
  for (std::size_t r = 0; r < states.size(); ++r) saved.push_back(read(states[r], r, states.size()));
  const std::vector<std::byte> sifter_before = p.sifter.save();
  Sifter* const server = p.exchange->server();
  const std::vector<std::byte> server_before = server == nullptr ? std::vector<std::byte>() : server->save();
  const auto rank = static_cast<std::size_t>(p.transport.rank());
  const bool as_before = saved.size() == static_cast<std::size_t>(p.transport.size()) &&
                         saved[rank].exchange == p.config.exchange && saved[rank].downlink == p.config.downlink;
  try {
    if (as_before) {
      p.sifter.load(saved[rank].sifter);
      if (server != nullptr) server->load(saved[rank].server);
    } else {
      p.share(saved);
    }
  } catch (...) {  // all or nothing
    p.sifter.load(sifter_before);
    if (server != nullptr) server->load(server_before);
    throw;
  }
  p.total.clear(p.layout.dim());
  p.stats = {};
}

}  // namespace sparsewire
