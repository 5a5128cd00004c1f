// The exceptions of the library.
//
// UsageError       an argument that cannot work; thrown at construction where possible.
// BadGradient      a NaN, an infinity, or a sum that overflows; the step was taken back.
// TransportError   a rank is gone, missed the deadline, is in another step, or sent a message that cannot be decoded.
// RankFailed       another rank could not do its part of a step; what() says why. The step was taken back.
// ReplicasDiffer   ranks got different updates: faulty hardware, or a bug in sparsewire.
//
// Bugs of the library itself fail assertions. The library never prints, aborts or installs signal handlers.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace sparsewire {

// Wrong use. what() names the offending value and the allowed range: "[topk] ratio=7 is not in (0, 1]".
class UsageError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

// A gradient that must not enter the error memory. Thrown after the step was taken back, so the same object can
// continue with the next gradient.
//
// Taking the step back restores the memory up to the rounding of decay*memory + scale*gradient (the factors of the
// feedback, 1 by default): each entry to within about 3e-7 * |memory| + 1e-7 * |scale*gradient| / decay. Where
// |scale*gradient| is finite but exceeds 1e8 * decay * |memory|, the old value of the memory is lost.
class BadGradient : public std::runtime_error {
 public:
  BadGradient(const std::string& what, int rank, std::uint64_t step, std::uint64_t index)
      : std::runtime_error(what), rank_(rank), step_(step), index_(index) {}

  int rank() const noexcept { return rank_; }
  // The number of the step that was taken back; the first is 0, or SifterContext::first_step.
  std::uint64_t step() const noexcept { return step_; }
  // The lowest index at which decay*memory + scale*gradient is not finite.
  std::uint64_t index() const noexcept { return index_; }

 private:
  int rank_;
  std::uint64_t step_;
  std::uint64_t index_;
};

// Another rank threw an error in a step before it sent anything: a gradient of the wrong size, say, or out of memory.
// That rank throws its own error. All ranks took the step back, so the same worker can continue with the next step.
class RankFailed : public std::runtime_error {
 public:
  RankFailed(const std::string& what, int rank) : std::runtime_error(what), rank_(rank) {}

  int rank() const noexcept { return rank_; }

 private:
  int rank_;
};

// The ranks got different updates. what() names the ranks that differ from the majority.
class ReplicasDiffer : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Another rank is gone, missed the deadline, or sent a message that cannot be right. To recover, create a new transport
// and load a checkpoint.
class TransportError : public std::runtime_error {
 public:
  TransportError(const std::string& what, int rank) : std::runtime_error(what), rank_(rank) {}

  // The rank that was lost; -1 if the transport does not know it.
  int rank() const noexcept { return rank_; }

 private:
  int rank_;
};

}  // namespace sparsewire
