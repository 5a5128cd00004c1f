// No index is sent: the receiver draws them again from the random stream that Random-k recorded in SparseVector::draw.
#include <algorithm>
#include <limits>

#include "codec/fields.h"
#include "codec/index_codec.h"
#include "kernels/draw.h"
#include "sparsewire/support/crc32c.h"
#include "sparsewire/support/philox.h"

namespace sparsewire {
namespace {

constexpr std::size_t kSeedHead = 8 + 8 + 4 + 1 + 4;
constexpr std::size_t kUnit = 8;
constexpr std::size_t kChecksum = 4;

bool is_one_unit(const Draw& draw, std::uint64_t dim, std::size_t count) {
  return draw.units.size() == 1 && draw.units[0].size == dim && draw.units[0].k == count;
}

// Whether the units cover all entries and draw as many indices as there are.
bool fits(const Draw& draw, std::uint64_t dim, std::size_t count) {
  std::uint64_t size = 0;
  std::uint64_t k = 0;
  for (const Draw::Unit& unit : draw.units) {
    if (unit.k > unit.size) return false;
    size += unit.size;
    k += unit.k;
  }
  return size == dim && k == count;
}

// How many units have to be written; nothing if the indices were not drawn.
std::optional<std::size_t> units_to_write(const Draw& draw, std::uint64_t dim, std::size_t count) {
  if (draw.units.empty() || !fits(draw, dim, count)) return std::nullopt;
  return is_one_unit(draw, dim, count) ? 0 : draw.units.size();
}

}  // namespace

SizeEstimate estimate_seed(const Support& support) {
  const auto units = support.draw == nullptr ? std::nullopt : units_to_write(*support.draw, support.dim, support.count);
  if (!units) return std::numeric_limits<double>::infinity();
  return static_cast<double>(kSeedHead + *units * kUnit + kChecksum);
}

std::optional<std::size_t> encode_seed(const SparseVector& vector, const Support& /*support*/, std::size_t limit,
                                       Buffer<std::byte>& out) {
  const Draw& draw = vector.draw;
  const auto found = units_to_write(draw, vector.dim, vector.indices.size());
  if (!found) return std::nullopt;
  const std::size_t units = *found;
  const std::size_t size = kSeedHead + units * kUnit + kChecksum;
  if (size > limit) return std::nullopt;
  out.reserve(size);
  std::byte* at = out.data();
  write_field(at, draw.seed);
  write_field(at, draw.step);
  write_field(at, draw.rank);
  write_field(at, draw.role);
  write_field(at, static_cast<std::uint32_t>(units));
  for (std::size_t u = 0; u < units; ++u) {
    write_field(at, draw.units[u].size);
    write_field(at, draw.units[u].k);
  }
  write_field(at, crc32c(std::as_bytes(std::span(vector.indices))));
  return size;
}

bool decode_seed(Bytes section, SparseVector& vector) {
  if (section.size() < kSeedHead + kChecksum) return false;
  Draw& draw = vector.draw;
  const std::byte* at = section.data();
  draw.seed = next_field<std::uint64_t>(at);
  draw.step = next_field<std::uint64_t>(at);
  draw.rank = next_field<std::uint32_t>(at);
  draw.role = next_field<std::uint8_t>(at);
  const std::size_t units = next_field<std::uint32_t>(at);
  const std::size_t count = vector.indices.size();
  if (section.size() != kSeedHead + units * kUnit + kChecksum) return false;
  draw.units.resize(std::max<std::size_t>(units, 1));
  draw.units[0] = {static_cast<std::uint32_t>(vector.dim), static_cast<std::uint32_t>(count)};
  for (std::size_t u = 0; u < units; ++u) {
    draw.units[u].size = next_field<std::uint32_t>(at);
    draw.units[u].k = next_field<std::uint32_t>(at);
  }
  if (!fits(draw, vector.dim, count)) return false;

  thread_local kernels::Drawer drawer;  // only scratch: it is kept so that later frames allocate nothing
  std::uint32_t* to = vector.indices.data();
  std::uint32_t begin = 0;
  for (std::size_t u = 0; u < draw.units.size(); ++u) {
    const auto [size, k] = draw.units[u];
    const Stream stream(unit_seed(draw.seed, u), draw.role, draw.rank, draw.step);
    const std::uint32_t* const positions = drawer.positions(stream, k, size);
    to = std::transform(positions, positions + k, to, [&](std::uint32_t position) { return begin + position; });
    begin += size;
  }
  return crc32c(std::as_bytes(std::span(vector.indices))) == read_field<std::uint32_t>(at);
}

}  // namespace sparsewire
