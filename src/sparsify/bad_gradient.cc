#include "sparsify/bad_gradient.h"

#include "core/text.h"
#include "kernels/sweep.h"
#include "sparsewire/errors.h"

namespace sparsewire {

void throw_bad_gradient(std::string_view who, const Place& place, std::uint64_t step, const Gradient& gradient,
                        std::span<const float> memory, std::size_t index) {
  const float number = kernels::number_at(gradient, index);
  const Tensor& tensor = place.layout.at(index);
  const std::string where =
      tensor.name.empty() ? text("index ", index)
                          : text("index ", index, " (tensor '", tensor.name, "', entry ", index - tensor.begin, ")");
  const std::string what = kernels::key_of(number) >= kernels::kInfinityKey
                               ? text("the gradient is ", number)
                               : text("memory ", memory[index], " and gradient ", number, " overflow");
  throw BadGradient(
      text("[", who, "] rank ", place.rank, ", step ", step, ": at ", where, " ", what, "; the step was taken back"),
      place.rank, step, index);
}

}  // namespace sparsewire
