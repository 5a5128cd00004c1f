// Times what one rank of `sharded` encodes, decodes and sums in a step.
#pragma once

#include <optional>

#include "bench.h"

namespace sparsewire::bench {

inline constexpr int kShardedRanks = 16;

// Milliseconds of encoding and decoding in a step among kShardedRanks ranks, with a downlink of the same ratio, the
// median of several. The other ranks send what this one sends. Nothing if the regions are not all of one size: then the
// answer of one region cannot stand for those of others.
std::optional<double> sharded_codec_time(const SparseVector& sent, double ratio, Pool* pool);

// The same for the two sums of such a step: that of the entries of kShardedRanks ranks in one region, of which each
// stands for another rank, and the union of as many regions. Without the downlink's sparsifier. Throws if the entries
// are not those that one thread finds.
std::optional<double> sharded_merge_time(const SparseVector& sent, Pool* pool);

}  // namespace sparsewire::bench
