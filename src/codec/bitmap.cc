// One bit for every entry of the whole vector: the shortest encoding from a density of about 0.4.
#include <bit>
#include <cstring>

#include "codec/index_codec.h"

namespace sparsewire {

SizeEstimate estimate_bitmap(const Support& support) { return static_cast<double>((support.dim + 7) / 8); }

std::optional<std::size_t> encode_bitmap(const SparseVector& vector, const Support& /*support*/, std::size_t limit,
                                         Buffer<std::byte>& out) {
  const std::size_t size = (vector.dim + 7) / 8;
  if (size > limit) return std::nullopt;
  out.reserve(size);
  if (size > 0) std::memset(out.data(), 0, size);
  for (const std::uint32_t index : vector.indices) out[index / 8] |= std::byte{1} << index % 8;
  return size;
}

bool decode_bitmap(Bytes section, SparseVector& vector) {
  if (section.size() != (vector.dim + 7) / 8) return false;
  std::uint32_t* const indices = vector.indices.data();
  const std::size_t count = vector.indices.size();
  std::size_t found = 0;
  for (std::size_t begin = 0; begin < section.size(); begin += 8) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, section.data() + begin, std::min<std::size_t>(8, section.size() - begin));
    if (static_cast<std::size_t>(std::popcount(bits)) > count - found) return false;
    for (; bits != 0; bits &= bits - 1) {
      indices[found++] = static_cast<std::uint32_t>(begin * 8) + static_cast<std::uint32_t>(std::countr_zero(bits));
    }
  }
  return found == count && (count == 0 || indices[count - 1] < vector.dim);
}

}  // namespace sparsewire
