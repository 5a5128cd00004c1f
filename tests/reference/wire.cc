#include "reference/wire.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "reference/philox.h"
#include "reference/wire_sections.h"

namespace sparsewire::reference {
namespace {

Frame read_or_refuse(std::span<const std::byte> bytes) {
  require(bytes.size() >= 28);
  require(Reader(bytes.last(4)).u32() == crc32c(bytes.first(bytes.size() - 4)));
  Reader in(bytes.first(bytes.size() - 4));
  for (const char letter : {'S', 'W', 'F', 'R'}) require(in.u8() == static_cast<std::uint8_t>(letter));
  require(in.u8() == 1);
  const std::uint8_t index_codec = in.u8();
  const std::uint8_t value_codec = in.u8();
  require(index_codec <= 6 && (value_codec <= 5 || (value_codec >= 128 && value_codec <= 132)));
  require(in.u8() == 0);
  Frame frame;
  frame.form.indices = static_cast<IndexCodec>(index_codec);
  frame.form.packed = value_codec >= 128;
  frame.form.values = static_cast<ValueCodec>(value_codec % 128);
  frame.vector.dim = in.u64();
  const std::uint64_t count = in.u64();
  require(frame.vector.dim < (std::uint64_t{1} << 32U) && count <= frame.vector.dim);
  const std::size_t before = in.left();
  get_values(in, count, frame);
  frame.value_bytes = before - in.left();
  frame.index_bytes = in.left();
  get_indices(in, count, frame);
  return frame;
}

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes) {
  static const std::vector<std::uint32_t> table = [] {
    std::vector<std::uint32_t> rows;
    for (std::uint32_t row = 0; row < 256; ++row) {
      std::uint32_t rest = row;
      for (int bit = 0; bit < 8; ++bit) rest = (rest & 1U) != 0 ? (rest >> 1U) ^ 0x82F63B78U : rest >> 1U;
      rows.push_back(rest);
    }
    return rows;
  }();
  std::uint32_t rest = ~0U;
  for (const std::byte byte : bytes) rest = (rest >> 8U) ^ table[(rest ^ std::to_integer<std::uint32_t>(byte)) & 0xFFU];
  return ~rest;
}

Bytes with_checksum(Bytes bytes) {
  if (bytes.size() < 4) return bytes;
  bytes.resize(bytes.size() - 4);
  Writer out;
  out.bytes(bytes);
  out.u32(crc32c(bytes));
  return out.take();
}

Bytes write_frame(const SparseVector& vector, const Form& form) {
  Writer out;
  for (const char letter : {'S', 'W', 'F', 'R'}) out.u8(static_cast<std::uint64_t>(letter));
  out.u8(1);
  out.u8(static_cast<std::uint64_t>(form.indices));
  out.u8(static_cast<std::uint64_t>(form.values) + (form.packed ? 128 : 0));
  out.u8(0);
  out.u64(vector.dim);
  out.u64(vector.size());
  out.bytes(values_section(vector, form));
  out.bytes(index_section(vector, form));
  out.u32(0);
  return with_checksum(out.take());
}

std::optional<Frame> read_frame(std::span<const std::byte> bytes) {
  try {
    return read_or_refuse(bytes);
  } catch (const Refused&) {
    return std::nullopt;
  }
}

std::vector<std::uint32_t> draw_positions(const Draw& draw, std::uint64_t unit, std::uint64_t k, std::uint64_t n) {
  const Stream stream{
      .seed = draw.seed + unit * 0x9E3779B97F4A7C15U, .step = draw.step, .rank = draw.rank, .role = draw.role};
  const bool left_out = 2 * k > n;
  const std::uint64_t wanted = left_out ? n - k : k;
  std::set<std::uint32_t> drawn;
  for (std::uint64_t i = 0; drawn.size() < wanted; ++i) {
    const Counter c = stream.block(static_cast<std::uint32_t>(i / 2));
    const std::uint64_t high = i % 2 == 0 ? c[1] : c[3];
    const std::uint64_t low = i % 2 == 0 ? c[0] : c[2];
    drawn.insert(static_cast<std::uint32_t>((high * n + ((low * n) >> 32U)) >> 32U));
  }
  if (!left_out) return {drawn.begin(), drawn.end()};
  std::vector<std::uint32_t> all(n);
  std::iota(all.begin(), all.end(), 0U);
  std::vector<std::uint32_t> rest;
  std::set_difference(all.begin(), all.end(), drawn.begin(), drawn.end(), std::back_inserter(rest));
  return rest;
}

}  // namespace sparsewire::reference
