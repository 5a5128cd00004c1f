// The options of a worker: which entries travel, who talks to whom, and how entries are written.
#pragma once

#include <cstdint>
#include <string>

#include "sparsewire/pool.h"
#include "sparsewire/sparsifier.h"

namespace sparsewire {

// What the weighted sum of an entry is divided by.
enum class Average : std::uint8_t {
  all,      // the weights of all workers: an entry that one of eight workers sent counts an eighth
  senders,  // the weights of the workers whose message has the entry: for updates of many local steps
};

// Must be the same on every rank, except for `weight` and `pool`. `sparsewire list` shows the specs that there are.
struct WorkerConfig {
  std::string sparsifier = "topk:ratio=0.01";
  std::string feedback = "ef";
  std::string exchange = "sharded";  // dense, allgather, server, sharded, or auto
  Average average = Average::all;
  std::string codec = "auto";
  std::string downlink = {};             // a sparsifier for the server's answer; empty: none
  std::string downlink_codec = {};       // empty: the same as `codec`
  std::string downlink_feedback = "ef";  // what a server does not send: ef (stays in its memory) or none (is dropped)
  Scope scope = Scope::model;
  double weight = 1;  // of this worker in the update, see Average
  std::uint64_t seed = 0;
  std::uint64_t check_every = 100;  // steps between two checks that all replicas got the same updates; 0: never
  Pool* pool = nullptr;             // borrowed; null: one thread
};

}  // namespace sparsewire
