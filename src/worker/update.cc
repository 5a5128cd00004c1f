// How an update gets to the caller: as a dense array, or applied to the weights.
#include <fmt/core.h>

#include <span>

#include "core/clear.h"
#include "core/number_types.h"
#include "core/standard_float_mode.h"
#include "exchange/clock.h"
#include "sparsewire/errors.h"
#include "worker/parts.h"

namespace sparsewire {
namespace {

void check(const WritableNumbers& numbers, std::uint64_t dim, const char* what) {
  if (numbers.device.kind != Device::host) {
    throw UsageError(fmt::format("[worker] {}: this build cannot write to a device: give an array on the host", what));
  }
  if (numbers.size == dim && (numbers.data != nullptr || dim == 0)) return;
  throw UsageError(fmt::format("[worker] {}: an array of {} entries does not fit a layout of {}", what,
                               numbers.data == nullptr ? 0 : numbers.size, dim));
}

// Calls write(numbers, rounded), where `rounded` makes a number of their type, and returns how long it took.
template <class Write>
std::uint64_t time_to_write(const WritableNumbers& numbers, std::uint64_t dim, const char* what, Write write) {
  const StandardFloatMode mode;
  check(numbers, dim, what);
  std::uint64_t ns = 0;
  StageClock clock;
  with_numbers(numbers, write);
  clock.lap(ns);
  return ns;
}

}  // namespace

void Worker::write_update(WritableNumbers numbers, float factor) const {
  const SparseVector& update = parts_->total;
  parts_->stats.ns_apply = time_to_write(numbers, parts_->layout.dim(), "write_update", [&](auto* to, auto rounded) {
    if (!update.is_full()) clear(std::as_writable_bytes(std::span(to, numbers.size)));  // zero is all bits 0
    for (std::size_t i = 0; i < update.size(); ++i) to[update.index(i)] = rounded(factor * update.values[i]);
  });
}

void Worker::apply_update(WritableNumbers weights, float lr) const {
  const SparseVector& update = parts_->total;
  parts_->stats.ns_apply = time_to_write(weights, parts_->layout.dim(), "apply_update", [&](auto* to, auto rounded) {
    for (std::size_t i = 0; i < update.size(); ++i) {
      const std::size_t at = update.index(i);
      to[at] = rounded(widened(weights.type, to[at]) - lr * update.values[i]);
    }
  });
}

}  // namespace sparsewire
