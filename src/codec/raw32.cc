// Indices as 32-bit integers, unchanged: the reference for the other codecs.
#include <algorithm>
#include <cstring>
#include <functional>

#include "codec/index_codec.h"

namespace sparsewire {

SizeEstimate estimate_raw32(const Support& support) {
  return static_cast<double>(support.count * sizeof(std::uint32_t));
}

std::optional<std::size_t> encode_raw32(const SparseVector& vector, const Support& /*support*/, std::size_t limit,
                                        Buffer<std::byte>& out) {
  const std::size_t size = vector.indices.size() * sizeof(std::uint32_t);
  if (size > limit) return std::nullopt;
  out.reserve(size);
  if (size > 0) std::memcpy(out.data(), vector.indices.data(), size);
  return size;
}

bool decode_raw32(Bytes section, SparseVector& vector) {
  std::vector<std::uint32_t>& indices = vector.indices;
  if (section.size() / sizeof(std::uint32_t) != indices.size() || section.size() % sizeof(std::uint32_t) != 0) {
    return false;
  }
  if (!section.empty()) std::memcpy(indices.data(), section.data(), section.size());
  return (indices.empty() || indices.back() < vector.dim) &&
         std::adjacent_find(indices.begin(), indices.end(), std::greater_equal<>()) == indices.end();
}

}  // namespace sparsewire
