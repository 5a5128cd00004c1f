// What the kernels of a step share in device memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sparsewire::cuda {

inline constexpr int kArenas = 64;
inline constexpr int kMostRounds = 12;    // of the search for k-th keys
inline constexpr int kBins = 2048;        // of one round
inline constexpr int kMostBlocks = 1024;  // of the kernel that finishes a step

// What a step came to. Bits, because a step can fail in several ways.
enum Outcome : std::uint32_t {
  kDone = 0,
  kTooFew = 1,       // the threshold was too high: there are fewer than k candidates
  kNoRoom = 2,       // it was too low: there are more candidates than room
  kNotFinite = 4,    // a sum is not finite
  kMayOverflow = 8,  // a velocity may become infinite: nothing was added
};

// What the host gets to know about a step.
struct StepResult {
  std::uint64_t bad = 0;  // the lowest index whose sum is not finite
  double accumulated_norm2 = 0;
  std::uint32_t count = 0;
  std::uint32_t outcome = 0;
  std::uint32_t kth = 0;
  std::uint32_t found = 0;  // candidates
};
// It is written where the host reads it without a call. Each word has the number of the step in its upper half, so
// they may arrive in any order.
inline constexpr unsigned kResultWords = sizeof(StepResult) / 4;
struct PublishedResult {
  std::uint64_t words[kResultWords] = {};
};

// The candidates of a tile: where they are in the arenas, in ascending order of their indices.
struct TileList {
  std::uint32_t offset = 0;
  std::uint32_t count = 0;
};

// Bins in which the pass counts keys from the threshold on, and how many keys each of them is for: few enough that
// they stay in the L2 cache, and that every block can look at all of them.
inline constexpr std::uint32_t kFine = 4096;
inline constexpr unsigned kFineShift = 7;
inline constexpr std::uint32_t kFineKeys = 1U << kFineShift;

// A counter in a line of its own: one that all blocks shared would be waited for.
struct alignas(128) Counter {
  std::uint32_t value = 0;
};

struct Failure {
  unsigned long long bad = ~0ULL;  // lowest index with a sum that is not finite
  std::uint32_t outcome = kDone;
};

// A candidate near the k-th hash of a draw.
struct Listed {
  std::uint32_t key = 0;
  std::uint32_t index = 0;
  std::uint32_t block = 0;
};
inline constexpr std::uint32_t kListed = 1024;
// What blocks tell each other while they run: a number with the step in its upper half. So nobody has to clear it, and
// who waits for it needs no other sign.
struct alignas(16) TwoNumbers {
  std::uint64_t first = 0;
  std::uint64_t second = 0;
};
// Keys of a block that are in the same bin as the k-th.
inline constexpr std::uint32_t kNear = 32;
inline constexpr std::uint32_t kNearInside = 3;  // of them, in the message that says how many there are
inline constexpr std::uint32_t kAllNear = 4096;  // and of all blocks

// Slices of 512 tiles whose sums a warp adds up at once: those of two groups.
inline constexpr unsigned kMostSlices = 16;

struct Control {
  Counter used[kArenas];                     // candidates in each arena; more than its size if some found no room
  alignas(128) std::uint32_t threshold = 0;  // key; 0: there is no guess
  float margin = 0.01F;                      // of the guess below the last k-th magnitude
  std::uint32_t likely = 0;                  // key that many sums have, and the k-th may have, too; 0: none
  alignas(128) std::uint32_t arrived = 0;    // at barriers
  std::uint32_t fell = 0;                    // candidates whose score is below the threshold
  std::uint32_t gathered = 0;                // candidates of units that have been gathered
  std::uint32_t listed = 0;                  // in `list`
  std::uint32_t units_done = 0;
  std::uint32_t has_uncounted = 0;           // 1: some candidates are not in the bins of the pass
  alignas(128) Failure failure;
  Failure last_failure;                      // of the last step of many units
  std::uint32_t groups_done = 0;             // groups of tiles whose norm is there
  double slice_norms[kMostSlices] = {};      // of the sums; where there are so few
  std::uint32_t bins[kMostRounds][kBins] = {};
  std::uint32_t above[kMostBlocks] = {};  // winners of each block, but ties
  std::uint32_t ties[kMostBlocks] = {};
  TwoNumbers near_counts[kMostBlocks] = {};  // candidates of each block above the bin of the k-th, and NearKeys
  TwoNumbers near_keys[kMostBlocks][kNear / 2] = {};
  Listed list[kListed] = {};
};

}  // namespace sparsewire::cuda
