// What can go wrong, and who is to blame.
//
// UsageError       the caller gave something that cannot work; thrown at construction where possible.
// BadGradient      a NaN, an infinity, or a sum that overflows; the step was taken back.
// TransportError   a rank is gone, too late, somewhere else in the program, or sent what cannot be read.
// ReplicasDiffer   ranks got different updates: a broken machine, or a bug of ours.
//
// Our own bugs assert. The library never prints, aborts or installs handlers.
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

// A gradient that must not enter the memory. Thrown after the step was taken back, so the same
// object can go on with the next gradient. The memory is as it was to the rounding of memory + gradient: where the
// gradient was finite but 10^8 times larger than the memory, the memory's digits are gone.
class BadGradient : public std::runtime_error {
 public:
  BadGradient(const std::string& what, int rank, std::uint64_t step, std::uint64_t index)
      : std::runtime_error(what), rank_(rank), step_(step), index_(index) {}

  int rank() const noexcept { return rank_; }
  // The number of the step that was taken back; the first is 0, or SifterContext::first_step.
  std::uint64_t step() const noexcept { return step_; }
  // The lowest index at which memory + gradient is not a finite number.
  std::uint64_t index() const noexcept { return index_; }

 private:
  int rank_;
  std::uint64_t step_;
  std::uint64_t index_;
};

// The update is not the same everywhere. what() names the ranks that differ from most others.
class ReplicasDiffer : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Another rank is gone, did not come within the deadline, or sent something that cannot be right. Who wants to go on
// begins anew, with a new transport, from a checkpoint.
class TransportError : public std::runtime_error {
 public:
  TransportError(const std::string& what, int rank) : std::runtime_error(what), rank_(rank) {}

  // The rank that was lost; -1 if the engine does not know.
  int rank() const noexcept { return rank_; }

 private:
  int rank_;
};

}  // namespace sparsewire
