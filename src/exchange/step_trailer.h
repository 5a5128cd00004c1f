// What travels behind every frame of a step: a few bytes that tell all ranks whether a gradient was bad, before
// anything is merged, and carry the caller's flags and loss.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace sparsewire {

// Behind the uplink frame of a worker.
struct StepTrailer {
  bool failed = false;        // this rank's gradient was bad; there is no frame
  std::uint8_t flags = 0;     // StepOptions::flags; all ranks get the flags of all
  std::uint32_t step_id = 0;  // checksum of the worker and the number of the step; must be the same on all ranks
  std::uint64_t entries = 0;  // sent by this rank; or, if it failed, the index at which the gradient was bad
  double loss = 0;            // StepOptions::loss; all ranks get the weighted mean
};

// Why a step failed.
struct Failure {
  // In order of severity, the worst last.
  enum class Kind : std::uint8_t {
    bad_gradient = 1,  // the gradient of `rank`, or a sum with it, is not finite at `index`
    unreadable,        // the message of `rank`; `index` is a DecodeStatus, or one of the constants below
    out_of_step,       // `rank` is in another step than rank 0, or steps another worker
  };
  static constexpr std::uint64_t kNoTrailer = 256;  // no trailer that can be read
  static constexpr std::uint64_t kOtherDim = 257;   // the frame holds a vector of another size

  Kind kind = Kind::bad_gradient;
  int rank = 0;
  std::uint64_t index = 0;
};

// The trailers of all ranks, combined. It travels behind the frame of a server's answer.
struct StepOutcome {
  std::optional<Failure> failure;  // the worst one; if several are equally bad, that of the lowest rank
  std::uint8_t flags = 0;          // of all ranks, or-ed
  std::uint64_t entries = 0;       // sent by all ranks
  double loss = 0;                 // the weighted mean over all ranks

  // Keeps the worse one of this failure and the one before.
  void fail(const Failure& another) noexcept;
};

using Message = std::vector<std::byte>;

// Appends the trailer to the frame.
void append(Message& message, const StepTrailer& trailer);
void append(Message& message, const StepOutcome& outcome);

struct ParsedMessage {
  std::span<const std::byte> frame;
  StepTrailer trailer;
};
// Nothing if there is no valid trailer.
std::optional<ParsedMessage> split_message(std::span<const std::byte> message);

struct ParsedAnswer {
  std::span<const std::byte> frame;
  StepOutcome outcome;  // a failure of rank `from` if it cannot be read
};
ParsedAnswer split_answer(std::span<const std::byte> message, int from);

// Combines the trailers of all ranks. `messages` and `weights` are in rank order. If there is no failure, `frames`
// becomes the messages without their trailers.
StepOutcome parse_trailers(std::span<const Message> messages, std::span<const float> weights,
                           std::vector<std::span<const std::byte>>& frames);

}  // namespace sparsewire
