#include "sparsify/bad_gradient.h"

#include <fmt/core.h>

#include "kernels/sweep.h"
#include "sparsewire/errors.h"

namespace sparsewire {

void throw_bad_gradient(std::string_view who, const SifterContext& context, std::uint64_t step,
                        const kernels::ScaledGradient& gradient, const ErrorMemory& memory, std::size_t index) {
  const float number = memory.number_of(gradient, index);
  const TensorRange& tensor = context.layout.at(index);
  const std::string where =
      tensor.name.empty() ? fmt::format("index {}", index)
                          : fmt::format("index {} (tensor '{}', entry {})", index, tensor.name, index - tensor.begin);
  const std::string what =
      kernels::key_of(number) >= kernels::kInfinityKey
          ? fmt::format("the gradient is {}", number)
          : fmt::format("the sum of memory {} and gradient {} overflows", memory.at(index), number);
  throw BadGradient(
      fmt::format("[{}] rank {}, step {}: at {} {}; the step was taken back", who, context.rank, step, where, what),
      context.rank, step, index);
}

}  // namespace sparsewire
