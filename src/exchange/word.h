// What a rank says in a round besides its frame: a few bytes behind it. Whether its gradient was bad must be known to
// all before anything is merged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace sparsewire {

struct Word {
  bool failed = false;
  std::uint8_t flags = 0;     // of the caller; all ranks learn of those of all
  std::uint32_t place = 0;    // a checksum of the worker and the step: all must be at the same place of the program
  std::uint64_t entries = 0;  // sent by this rank; or, if it failed, where
  double loss = 0;            // of the caller; all ranks learn of the weighted mean
};

// Why a round came to nothing.
struct Failure {
  // The worse come later.
  enum class Kind : std::uint8_t {
    bad_gradient = 1,  // of this rank: not finite at `index`, or the sum there is not
    unreadable,        // what this rank sent; `index` is a DecodeStatus, or one of the following
    elsewhere,         // this rank is in another step, or steps another worker
  };
  static constexpr std::uint64_t kNoMessage = 256;     // not even a word
  static constexpr std::uint64_t kOtherEntries = 257;  // a frame of a vector of another size

  Kind kind = Kind::bad_gradient;
  int rank = 0;
  std::uint64_t index = 0;
};

// What all of them say together.
struct Verdict {
  std::optional<Failure> failure;  // the worst; of those the lowest rank's
  std::uint8_t flags = 0;
  std::uint64_t entries = 0;  // of all ranks
  double loss = 0;

  void fail(const Failure& another) noexcept;
};

using Message = std::vector<std::byte>;

// Puts the word behind the frame.
void append(Message& message, const Word& word);

struct Heard {
  std::span<const std::byte> frame;
  Word word;
};
// Nothing if it is no such message.
std::optional<Heard> take_apart(std::span<const std::byte> message);

// As append and take_apart, for a verdict that a server passes on.
void append(Message& message, const Verdict& verdict);
struct HeardVerdict {
  std::span<const std::byte> frame;
  Verdict verdict;  // an unreadable one is a failure of rank `from`
};
HeardVerdict take_verdict_apart(std::span<const std::byte> message, int from);

// What the words of all ranks say together. `messages` and `weights` in rank order; `frames` becomes the messages
// without the words, if there is no failure.
Verdict hear_all(std::span<const Message> messages, std::span<const float> weights,
                 std::vector<std::span<const std::byte>>& frames);

}  // namespace sparsewire
