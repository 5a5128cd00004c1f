// How an update gets to the caller: as a dense array, or applied to the weights.
#include <fmt/core.h>

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

}  // namespace

void Worker::write_update(WritableNumbers numbers, float factor) const {
  const StandardFloatMode mode;
  const SparseVector& update = parts_->total;
  check(numbers, parts_->layout.dim(), "write_update");
  parts_->stats.ns_apply = 0;
  StageClock clock;
  with_numbers(numbers, [&](auto* to, auto rounded) {
    if (update.is_full()) {
      for (std::size_t i = 0; i < update.size(); ++i) to[i] = rounded(factor * update.values[i]);
      return;
    }
    std::fill_n(to, numbers.size, rounded(0.0F));
    for (std::size_t i = 0; i < update.size(); ++i) to[update.indices[i]] = rounded(factor * update.values[i]);
  });
  clock.lap(parts_->stats.ns_apply);
}

void Worker::apply_update(WritableNumbers weights, float lr) const {
  const StandardFloatMode mode;
  const SparseVector& update = parts_->total;
  check(weights, parts_->layout.dim(), "apply_update");
  parts_->stats.ns_apply = 0;
  StageClock clock;
  with_numbers(weights, [&](auto* to, auto rounded) {
    for (std::size_t i = 0; i < update.size(); ++i) {
      const std::size_t at = update.index(i);
      to[at] = rounded(widened(weights.type, to[at]) - lr * update.values[i]);
    }
  });
  clock.lap(parts_->stats.ns_apply);
}

}  // namespace sparsewire
