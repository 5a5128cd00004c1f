// Times what one rank of `sharded` encodes and decodes in a step.
#pragma once

#include <optional>

#include "bench.h"

namespace sparsewire::bench {

inline constexpr int kShardedRanks = 16;

// Milliseconds of encoding and decoding in a step among kShardedRanks ranks, with a downlink of the same ratio, the
// median of several. The other ranks send what this one sends. Nothing if the regions are not all of one size: then the
// answer of one region cannot stand for those of others.
std::optional<double> sharded_codec_time(const SparseVector& sent, double ratio, Pool* pool);

}  // namespace sparsewire::bench
