// What travels behind every frame of a step: a few bytes that tell all ranks whether one of them failed, before
// anything is merged, and carry the caller's flags and loss. docs/reference/message_format.md describes the bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace sparsewire {

// Why a rank failed, in words: the start of the text of its error. An array, because there may be no memory left.
class Cause {
 public:
  static constexpr std::size_t kMostBytes = 200;

  Cause() = default;
  explicit Cause(std::string_view text) noexcept;

  std::string_view text() const noexcept { return {bytes_.data(), size_}; }

 private:
  std::array<char, kMostBytes> bytes_{};
  std::uint8_t size_ = 0;
};

// Why a step failed.
struct Failure {
  // In order of severity, the worst last. After the first two all ranks take the step back and can continue.
  enum class Kind : std::uint8_t {
    bad_gradient = 1,  // the gradient of `rank`, or a sum with it, is not finite at `index`
    error,             // `rank` could not do its part; `cause` says why
    unreadable,        // the message of `rank`; `index` is a DecodeStatus, or one of the constants below
    out_of_step,       // `rank` is in another step than rank 0, or steps another worker
  };
  static constexpr std::uint64_t kNoTrailer = 256;  // no trailer that can be read
  static constexpr std::uint64_t kOtherDim = 257;   // the frame holds a vector of another size
  static constexpr std::uint64_t kElsewhere = 258;  // another rank could not read a trailer; `rank` is -1

  Kind kind = Kind::bad_gradient;
  int rank = 0;
  std::uint64_t index = 0;
  Cause cause = {};
  bool found_here = false;  // this rank could not read what it received; the others may not know of it
};

// Behind the uplink frame of a worker.
struct StepTrailer {
  int rank = 0;                    // of the sender
  std::uint32_t fingerprint = 0;   // of the worker; must be the same on all ranks
  std::uint64_t step = 0;          // the number of the step; must be the same on all ranks
  float weight = 1;                // of this rank in the update, as it was given
  bool is_weight_of_step = false;  // it is StepOptions::weight, and not WorkerConfig::weight
  float lr = 1;                    // StepOptions::lr
  std::uint8_t flags = 0;          // StepOptions::flags; all ranks get the flags of all
  double loss = 0;                 // StepOptions::loss; all ranks get the weighted mean
  std::uint64_t entries = 0;       // sent by this rank
  std::optional<Failure> failure;  // of this rank, a bad gradient or an error; then there is no frame
};

// The trailers of all ranks, combined. It travels behind the frame of a server's answer.
struct StepOutcome {
  std::optional<Failure> failure;  // the worst one; if several are equally bad, that of the lowest rank
  std::uint8_t flags = 0;          // of all ranks, or-ed
  std::uint64_t entries = 0;       // sent by all ranks
  double loss = 0;                 // the weighted mean over all ranks
  float lr = 0;  // the learning rate; the weighted mean of its magnitudes if ranks have different ones

  // Keeps the worse one of this failure and the one before.
  void fail(const Failure& another) noexcept;
};

using Message = std::vector<std::byte>;

inline constexpr std::size_t kTrailerSize = 52;  // without a failure
inline constexpr std::size_t kMostTrailerSize = kTrailerSize + Cause::kMostBytes;

// Appends the trailer to the frame. Allocates nothing if the message has room for kMostTrailerSize bytes.
void append(Message& message, const StepTrailer& trailer);
// The same for an answer. `own` is the trailer of the server's own worker: the answer has its fingerprint and step.
void append(Message& message, const StepOutcome& outcome, const StepTrailer& own);

struct ParsedMessage {
  std::span<const std::byte> frame;
  StepTrailer trailer;
};
// Nothing if there is no valid trailer.
std::optional<ParsedMessage> split_message(std::span<const std::byte> message);

struct ParsedAnswer {
  std::span<const std::byte> frame;
  StepOutcome outcome;  // a failure of rank `from` if it cannot be read, or is for another step than `own`
};
ParsedAnswer split_answer(std::span<const std::byte> message, int from, const StepTrailer& own);

// Combines the trailers of all ranks. `messages` and `weights` are in rank order. `frames` becomes the messages without
// their trailers; those that cannot be read are empty. `shares` becomes what each rank counts in the sum: `weights`, or
// shares of the weights in the trailers if a rank has one of its own in this step.
StepOutcome parse_trailers(std::span<const Message> messages, std::span<const float> weights,
                           std::vector<float>& shares, std::vector<std::span<const std::byte>>& frames);

}  // namespace sparsewire
