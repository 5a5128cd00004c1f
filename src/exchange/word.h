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
  std::uint64_t entries = 0;  // sent by this rank; or, if it failed, where
};

// What all of them say together.
struct Verdict {
  struct Failure {
    int rank = 0;
    std::uint64_t index = 0;
  };
  std::optional<Failure> failure;  // of the lowest rank that failed
  std::uint8_t flags = 0;
  std::uint64_t entries = 0;  // of all ranks

  void hear(int rank, const Word& word) noexcept;
};

using Message = std::vector<std::byte>;

// Puts the word behind the frame.
void append(Message& message, const Word& word);

struct Heard {
  std::span<const std::byte> frame;
  Word word;
};
// Throws TransportError: rank `from` sent something else.
Heard take_apart(std::span<const std::byte> message, int from);

// As append and take_apart, for a verdict that a server passes on.
void append(Message& message, const Verdict& verdict);
struct HeardVerdict {
  std::span<const std::byte> frame;
  Verdict verdict;
};
HeardVerdict take_verdict_apart(std::span<const std::byte> message, int from);

}  // namespace sparsewire
