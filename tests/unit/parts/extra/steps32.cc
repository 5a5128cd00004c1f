// An index codec that is not in the library: each index minus the one before.
#include <cstring>

#include "codec/index_codec.h"

namespace sparsewire {

SizeEstimate estimate_steps32(const Support& support) { return static_cast<double>(support.count * 4); }

std::optional<std::size_t> encode_steps32(const SparseVector& vector, const Support& /*support*/, std::size_t limit,
                                          Buffer<std::byte>& out) {
  const std::size_t size = vector.indices.size() * 4;
  if (size > limit) return std::nullopt;
  out.reserve(size);
  std::uint32_t last = 0;
  for (std::size_t i = 0; i < vector.indices.size(); ++i) {
    const std::uint32_t step = vector.indices[i] - last;
    std::memcpy(out.data() + 4 * i, &step, 4);
    last = vector.indices[i];
  }
  return size;
}

bool decode_steps32(Bytes section, SparseVector& vector) {
  if (section.size() != vector.indices.size() * 4) return false;
  std::uint64_t last = 0;
  for (std::size_t i = 0; i < vector.indices.size(); ++i) {
    std::uint32_t step = 0;
    std::memcpy(&step, section.data() + 4 * i, 4);
    last += step;
    if ((step == 0 && i > 0) || last >= vector.dim) return false;
    vector.indices[i] = static_cast<std::uint32_t>(last);
  }
  return true;
}

}  // namespace sparsewire
