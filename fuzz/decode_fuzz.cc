// Fuzzes decode(). For any bytes, decode() and the slow reader of tests/reference either both refuse them or return the
// same vector; memory stays bounded; and a decoded vector can be encoded again.
//
// The checksum would stop almost every mutation, so the bytes are tried a second time with a correct checksum.
#include <sanitizer/allocator_interface.h>

#include <algorithm>
#include <cmath>

#include "reference/wire.h"
#include "require.h"
#include "sparsewire/codec.h"

namespace sparsewire {
namespace {

// The bytes allocated while `watched` is set, and their peak.
struct Memory {
  bool watched = false;
  std::size_t live = 0;
  std::size_t peak = 0;
};
Memory memory;

void on_malloc(const volatile void* /*block*/, std::size_t size) {
  if (!memory.watched) return;
  memory.live += size;
  memory.peak = std::max(memory.peak, memory.live);
}

void on_free(const volatile void* block) {
  if (!memory.watched || block == nullptr) return;
  const std::size_t size = __sanitizer_get_allocated_size(block);
  memory.live -= std::min(memory.live, size);
}

DecodeStatus watched_decode(std::span<const std::byte> bytes, SparseVector& vector) {
  [[maybe_unused]] static const int installed = __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
  memory = {.watched = true};
  const DecodeStatus status = decode(bytes, vector);
  memory.watched = false;
  require(memory.peak <= 64 * bytes.size() + 4096, "at most 64 bytes of memory for each byte of the frame");
  return status;
}

void check_again(const SparseVector& vector) {
  static Codec codec("auto");
  reference::Bytes frame;
  std::vector<float> received;
  codec.encode(vector, frame, &received);
  require(same_bits(vector.values, received), "f32 values are not changed");
  SparseVector again;
  require(decode(frame, again) == DecodeStatus::ok, "what was encoded can be decoded");
  require(same_bits(vector, again), "encode, then decode is identity");
}

void check(std::span<const std::byte> bytes) {
  SparseVector vector;
  const DecodeStatus status = watched_decode(bytes, vector);
  require(!describe(status).empty(), "a status has a description");
  const auto slow = reference::read_frame(bytes);
  require((status == DecodeStatus::ok) == slow.has_value(), "decode and the reference accept the same frames");
  FrameInfo info;
  require(inspect(bytes, info) == status, "inspect and decode return the same status");
  if (status != DecodeStatus::ok) {
    require(vector.dim == 0 && vector.indices.empty() && vector.values.empty(), "refused: the vector is empty");
    return;
  }
  require(vector.is_valid(), "the vector is valid");
  require(std::all_of(vector.values.begin(), vector.values.end(), [](float x) { return std::isfinite(x); }),
          "values are finite");
  require(same_bits(slow->vector, vector), "the reference reads the same vector");
  require(info.dim == vector.dim && info.count == vector.size() && info.value_bytes == slow->value_bytes &&
              info.header_bytes + info.value_bytes + info.index_bytes == bytes.size(),
          "inspect reports the right counts");
  check_again(vector);
}

}  // namespace
}  // namespace sparsewire

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sparsewire;
  const auto bytes = std::as_bytes(std::span(data, size));
  check(bytes);
  check(reference::with_checksum({bytes.begin(), bytes.end()}));
  return 0;
}
