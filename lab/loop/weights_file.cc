#include "loop/weights_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "files/npy.h"
#include "sparsewire/errors.h"
#include "sparsewire/support/half.h"

namespace sparsewire::train {
namespace {

// As Python writes it: "(2, 3)", "(7,)".
std::string text_of(const files::Shape& shape) {
  return fmt::format("({}{})", fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
}

}  // namespace

std::vector<float> read_weights(const std::string& path, std::size_t size) {
  const files::Array array = files::read_npy(path);
  if (array.shape != files::Shape{size}) {
    throw UsageError(fmt::format("'{}' has the shape {}, but the model has {} weights: the shape must be {}", path,
                                 text_of(array.shape), size, text_of({size})));
  }
  std::vector<float> weights(size);
  if (array.type == NumberType::f32) {
    std::copy(array.floats().begin(), array.floats().end(), weights.begin());
  } else {
    const auto* halves = reinterpret_cast<const std::uint16_t*>(array.bytes.data());
    std::transform(halves, halves + size, weights.begin(), from_f16);
  }
  const auto bad = std::find_if_not(weights.begin(), weights.end(), [](float weight) { return std::isfinite(weight); });
  if (bad == weights.end()) return weights;
  throw UsageError(fmt::format("'{}': weight {} is {}", path, bad - weights.begin(), *bad));
}

void write_weights(const std::string& path, std::span<const float> weights) {
  files::Replacement file(path);
  const files::Shape shape{weights.size()};
  files::write_npy(file, weights, shape);
  file.commit();
}

}  // namespace sparsewire::train
