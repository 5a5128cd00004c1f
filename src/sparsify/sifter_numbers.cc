// The numbers of a Sifter's memory and velocity, read and written from outside.
#include <fmt/core.h>

#include <cmath>

#include "core/number_types.h"
#include "sparsewire/errors.h"
#include "sparsify/sifter_parts.h"

namespace sparsewire {
namespace {

// Throws UsageError if no tensor has that name.
template <class Parts>
const TensorRange& find_tensor(const Parts& parts, std::string_view name) {
  const TensorRange* const found = parts.context.layout.find(name);
  if (found == nullptr) throw UsageError(fmt::format("[{}] the layout has no tensor '{}'", parts.name, name));
  return *found;
}

void check_host_size(const std::string& name, const Device& device, std::size_t size, std::size_t wanted,
                     const char* what) {
  if (device.kind != Device::host) {
    throw UsageError(fmt::format("[{}] {}: the numbers must be on the host", name, what));
  }
  if (size != wanted) {
    throw UsageError(fmt::format("[{}] {}: {} numbers were given for {} entries", name, what, size, wanted));
  }
}

}  // namespace

std::vector<float> Sifter::memory() const {
  const std::span<const float> numbers = parts_->memory.numbers();
  return {numbers.begin(), numbers.end()};
}

std::vector<float> Sifter::velocity() const {
  const std::span<const float> numbers = parts_->velocity.numbers();
  return {numbers.begin(), numbers.end()};
}

void Sifter::read_memory(std::string_view tensor, WritableNumbers numbers) const {
  const TensorRange& range = find_tensor(*parts_, tensor);
  check_host_size(parts_->name, numbers.device, numbers.size, range.size, "read_memory");
  std::vector<float> copy(range.size);
  parts_->memory.read(range.begin, copy);
  with_numbers(numbers, [&](auto* to, auto rounded) {
    for (std::size_t i = 0; i < copy.size(); ++i) to[i] = rounded(copy[i]);
  });
}

void Sifter::write_memory(std::string_view tensor, const Gradient& numbers) {
  const TensorRange& range = find_tensor(*parts_, tensor);
  parts_->write(parts_->memory, range.begin, range.size, numbers, "write_memory");
}
void Sifter::write_memory(const Gradient& numbers) {
  parts_->write(parts_->memory, 0, parts_->memory.size(), numbers, "write_memory");
}
void Sifter::write_velocity(const Gradient& numbers) {
  parts_->write(parts_->velocity, 0, parts_->velocity.size(), numbers, "write_velocity");
}

void Sifter::write_total_error(double total_error) { parts_->stats.total_error = total_error; }

void Sifter::Parts::write(ErrorMemory& to, std::size_t begin, std::size_t size, const Gradient& numbers,
                          const char* what) {
  check_host_size(name, numbers.device, numbers.size, size, what);
  std::vector<float> copy(size);
  for (std::size_t i = 0; i < size; ++i) {
    copy[i] = kernels::number_at(numbers, i);
    if (!std::isfinite(copy[i])) {
      throw UsageError(fmt::format("[{}] {}: number {} is {}, which is not finite", name, what, i, copy[i]));
    }
  }
  to.write(begin, copy);
  may_hold_numbers = true;
  can_undo = can_flush = false;
}

}  // namespace sparsewire
