#include "reference/state.h"

#include <algorithm>
#include <cstring>

namespace sparsewire::reference {
namespace {

constexpr std::size_t kStateHeader = 16;
constexpr std::size_t kStateChecksum = 4;

void put(Bytes& to, std::uint64_t number, int bytes) {
  for (int i = 0; i < bytes; ++i) to.push_back(static_cast<std::byte>((number >> (8 * i)) & 0xFFU));
}

void put(Bytes& to, const std::string& text) {
  for (const char letter : text) to.push_back(static_cast<std::byte>(letter));
}

bool is_state(const std::byte* data, std::uint64_t size) {
  return size >= kStateHeader + kStateChecksum && std::memcmp(data, "SWST", 4) == 0;
}

}  // namespace

Bytes write_state(const std::vector<StateField>& fields, std::uint32_t version) {
  Bytes inside;
  for (const StateField& field : fields) {
    put(inside, field.name.size() | (field.is_optional ? 0x80U : 0U), 1);
    put(inside, field.name);
    put(inside, field.data.size(), 8);
    inside.insert(inside.end(), field.data.begin(), field.data.end());
  }
  Bytes state;
  put(state, "SWST");
  put(state, version, 4);
  put(state, inside.size(), 8);
  state.insert(state.end(), inside.begin(), inside.end());
  put(state, crc32c(state), 4);
  return state;
}

std::vector<StateField> read_state(const Bytes& state) {
  std::vector<StateField> fields;
  std::size_t at = kStateHeader;
  while (at < state.size() - kStateChecksum) {
    const auto first = std::to_integer<std::size_t>(state[at]);
    const std::size_t length = first & 0x7FU;
    const std::byte* const name = state.data() + at + 1;
    std::uint64_t size = 0;
    std::memcpy(&size, name + length, 8);
    const std::byte* const data = name + length + 8;
    fields.push_back(
        {std::string(reinterpret_cast<const char*>(name), length), Bytes(data, data + size), first > 0x7FU});
    at += 1 + length + 8 + size;
  }
  return fields;
}

Bytes with_checksums(Bytes state) {
  if (!is_state(state.data(), state.size())) return with_checksum(std::move(state));
  const std::size_t end = state.size() - kStateChecksum;
  std::size_t at = kStateHeader;
  while (at < end) {
    const std::size_t head = 1 + (std::to_integer<std::size_t>(state[at]) & 0x7FU) + 8;
    if (end - at < head) break;
    std::uint64_t size = 0;
    std::memcpy(&size, state.data() + at + head - 8, 8);
    at += head;
    if (size > end - at) break;
    std::byte* const data = state.data() + at;
    if (is_state(data, size)) {
      const Bytes nested = with_checksums(Bytes(data, data + size));
      std::copy(nested.begin(), nested.end(), data);
    }
    at += size;
  }
  return with_checksum(std::move(state));
}

}  // namespace sparsewire::reference
