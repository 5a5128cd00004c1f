// How an update gets to the caller: as a dense array, or applied to the weights.
#include <fmt/core.h>

#include <span>

#include "core/clear.h"
#include "core/number_types.h"
#include "exchange/clock.h"
#include "sparsewire/errors.h"
#include "sparsewire/support/float_mode.h"
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

// The update becomes entries on the host, if it is on a device only.
void Worker::Parts::bring_update() {
  if (sum == nullptr || total.is_full()) return;
  total.values.resize(layout.dim());
  try {
    sum->read(total.values);
  } catch (...) {
    total.clear(layout.dim());
    throw;
  }
}

void Worker::write_update(WritableNumbers numbers, float factor) const {
  Parts& p = *parts_;
  const auto write = [&](auto* to, auto rounded) {
    p.bring_update();
    const SparseVector& update = p.total;
    if (!update.is_full()) clear(std::as_writable_bytes(std::span(to, numbers.size)));  // zero is all bits 0
    for (std::size_t i = 0; i < update.size(); ++i) to[update.index(i)] = rounded(factor * update.values[i]);
  };
  const auto on_device = [&] {
    if (p.has_update_on(numbers.device)) return p.sum->write(factor, numbers);
    p.bring_update();
    p.arrays_of(numbers.device).write(p.total, factor, numbers);
  };
  p.stats.ns_apply = time_to_write(numbers, p.layout.dim(), "write_update", write, on_device);
}

void Worker::apply_update(WritableNumbers weights, float lr) const {
  Parts& p = *parts_;
  const auto apply = [&](auto* to, auto rounded) {
    p.bring_update();
    const SparseVector& update = p.total;
    for (std::size_t i = 0; i < update.size(); ++i) {
      const std::size_t at = update.index(i);
      to[at] = rounded(widened(weights.type, to[at]) - lr * update.values[i]);
    }
  };
  const auto on_device = [&] {
    if (p.has_update_on(weights.device)) return p.sum->subtract(lr, weights);
    p.bring_update();
    p.arrays_of(weights.device).subtract(p.total, lr, weights);
  };
  p.stats.ns_apply = time_to_write(weights, p.layout.dim(), "apply_update", apply, on_device);
}

}  // namespace sparsewire
