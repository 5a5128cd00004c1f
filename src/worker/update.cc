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
  if (numbers.size == dim && (numbers.data != nullptr || dim == 0)) return;
  throw UsageError(fmt::format("[worker] {}: an array of {} entries does not fit a layout of {}", what,
                               numbers.data == nullptr ? 0 : numbers.size, dim));
}

// Calls write(numbers, rounded), where `rounded` makes a number of their type, or on_device() if the array is on one,
// and returns how long it took.
template <class Write, class OnDevice>
std::uint64_t time_to_write(const WritableNumbers& numbers, std::uint64_t dim, const char* what, Write write,
                            OnDevice on_device) {
  const StandardFloatMode mode;
  check(numbers, dim, what);
  std::uint64_t ns = 0;
  StageClock clock;
  if (numbers.device.kind == Device::host) {
    with_numbers(numbers, write);
  } else {
    on_device();
  }
  clock.lap(ns);
  return ns;
}

}  // namespace

DeviceArrays& Worker::Parts::arrays_of(Device device) {
  if (arrays == nullptr || arrays_device != device) {
    arrays = make_device_arrays(device);
    arrays_device = device;
  }
  return *arrays;
}

void Worker::write_update(WritableNumbers numbers, float factor) const {
  const SparseVector& update = parts_->total;
  const auto write = [&](auto* to, auto rounded) {
    if (!update.is_full()) clear(std::as_writable_bytes(std::span(to, numbers.size)));  // zero is all bits 0
    for (std::size_t i = 0; i < update.size(); ++i) to[update.index(i)] = rounded(factor * update.values[i]);
  };
  parts_->stats.ns_apply = time_to_write(numbers, parts_->layout.dim(), "write_update", write,
                                         [&] { parts_->arrays_of(numbers.device).write(update, factor, numbers); });
}

void Worker::apply_update(WritableNumbers weights, float lr) const {
  const SparseVector& update = parts_->total;
  const auto apply = [&](auto* to, auto rounded) {
    for (std::size_t i = 0; i < update.size(); ++i) {
      const std::size_t at = update.index(i);
      to[at] = rounded(widened(weights.type, to[at]) - lr * update.values[i]);
    }
  };
  parts_->stats.ns_apply = time_to_write(weights, parts_->layout.dim(), "apply_update", apply,
                                         [&] { parts_->arrays_of(weights.device).subtract(update, lr, weights); });
}

}  // namespace sparsewire
