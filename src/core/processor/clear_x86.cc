#include <emmintrin.h>

#include <cstdint>
#include <cstring>

#include "core/clear.h"

namespace sparsewire {

void clear(std::span<std::byte> bytes) noexcept {
  constexpr std::size_t kLarge = std::size_t{16} << 20;
  constexpr std::size_t kLine = 64;
  if (bytes.size() < kLarge) {
    if (!bytes.empty()) std::memset(bytes.data(), 0, bytes.size());
    return;
  }
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(bytes.data()) % kLine;
  const std::size_t head = misaligned == 0 ? 0 : kLine - misaligned;
  const std::size_t tail = (bytes.size() - head) % kLine;
  std::byte* to = bytes.data() + head;
  const std::byte* const end = bytes.data() + bytes.size() - tail;
  const __m128i zero = _mm_setzero_si128();
  std::memset(bytes.data(), 0, head);
  for (; to != end; to += kLine) {
    for (std::size_t i = 0; i < kLine; i += sizeof zero) _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), zero);
  }
  _mm_sfence();
  std::memset(to, 0, tail);
}

}  // namespace sparsewire
