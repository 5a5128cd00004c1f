#include "codec/rounding.h"

#include <cmath>

#include "sparsewire/support/float_mode.h"

namespace sparsewire {

void Rounding::round(const SparseVector& vector, std::vector<float>& received) {
  const StandardFloatMode mode;
  check_finite(vector);
  const IndexCodec* const indices = choice_.index_codec;
  const bool needs_draw = indices != nullptr && indices->section == IndexSection::draw && !vector.is_full();
  if (needs_draw) {
    const Support drawn{.dim = vector.dim, .count = vector.size(), .draw = &vector.draw};
    if (std::isinf(indices->estimate(drawn).bytes)) throw_not_drawn(*indices);
  }
  if (!choice_.value_format->rounds) return;
  const std::size_t count = vector.size();
  section_.reserve_with_room(choice_.value_format->size(count, choice_.block) + 256);
  if (received.capacity() < count) received.reserve(count + count / 4 + 64);
  received.resize(count);
  choice_.value_format->encode(vector.values, choice_.block, section_.data(), received.data());
}

}  // namespace sparsewire
