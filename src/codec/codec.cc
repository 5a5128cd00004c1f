// Frames: a header, a section of values, a section of indices, a checksum. The value format and the index codec that
// the header names define what is in the two sections.
#include "sparsewire/codec.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>

#include "codec/codec_spec.h"
#include "codec/fields.h"
#include "codec/index_codec.h"
#include "codec/numbers.h"
#include "codec/packed.h"
#include "codec/support.h"
#include "codec/value_format.h"
#include "core/buffer.h"
#include "core/room.h"
#include "core/slices.h"
#include "kernels/entries.h"
#include "kernels/simd.h"
#include "sparsewire/errors.h"
#include "sparsewire/support/crc32c.h"
#include "sparsewire/support/float_mode.h"

namespace sparsewire {
namespace {

constexpr std::uint32_t kMagic = 0x52465753;  // "SWFR"
constexpr std::uint8_t kVersion = 1;
constexpr std::uint8_t kPacked = 0x80;  // added to the id of a value format
constexpr std::uint8_t kFull = 0;       // the id for "no indices: all entries are present"
constexpr std::size_t kHeaderSize = 24;
constexpr std::size_t kChecksumSize = 4;
constexpr std::uint64_t kMostDim = 0xFFFFFFFF;

// From so many entries on, the two sections are worth a thread each.
constexpr std::size_t kLong = 16384;
Pool* pool_for(std::size_t count, Pool* pool) { return count < kLong ? nullptr : pool; }

void write_header(std::byte*& at, std::uint8_t index_id, std::uint8_t value_id, std::uint64_t dim, std::size_t count) {
  write_field(at, kMagic);
  write_field(at, kVersion);
  write_field(at, index_id);
  write_field(at, value_id);
  write_field(at, std::uint8_t{0});
  write_field(at, dim);
  write_field(at, std::uint64_t{count});
}

template <class Table>
auto* find_id(const Table& table, int id) {
  const auto found = std::find_if(table.begin(), table.end(), [&](const auto& entry) { return entry.id == id; });
  return found == table.end() ? nullptr : &*found;
}

// A frame whose header, checksum and sizes have been checked.
struct Frame {
  std::uint64_t dim = 0;
  std::size_t count = 0;
  const IndexCodec* index_codec = nullptr;  // null: full
  const ValueFormat* value_format = nullptr;
  std::size_t block = 0;               // 0: none
  std::optional<PackedValues> packed;  // nothing: the values are as the format encodes them
  Bytes values;
  Bytes indices;
};

DecodeStatus parse_packed_values(Bytes rest, Frame& frame) {
  frame.packed = parse_packed(*frame.value_format, frame.count, rest);
  if (!frame.packed) return DecodeStatus::bad_values;
  frame.block = block_of(*frame.packed);
  frame.values = frame.packed->section;
  frame.indices = rest.subspan(frame.values.size());
  return DecodeStatus::ok;
}

DecodeStatus parse_values(Bytes rest, Frame& frame) {
  const ValueFormat& format = *frame.value_format;
  if (format.has_blocks) {
    if (rest.size() < sizeof(std::uint32_t)) return DecodeStatus::too_short;
    frame.block = read_field<std::uint32_t>(rest.data());
    if (frame.block < kLeastBlock || frame.block > kMostBlock) return DecodeStatus::bad_values;
  }
  const std::size_t size = format.size(frame.count, frame.block);
  if (size > rest.size()) return DecodeStatus::too_short;
  frame.values = rest.first(size);
  frame.indices = rest.subspan(size);
  return DecodeStatus::ok;
}

DecodeStatus parse(Bytes bytes, Frame& frame) {
  if (bytes.size() < kHeaderSize + kChecksumSize) return DecodeStatus::too_short;
  const std::byte* at = bytes.data();
  if (next_field<std::uint32_t>(at) != kMagic) return DecodeStatus::not_a_frame;
  if (next_field<std::uint8_t>(at) != kVersion) return DecodeStatus::unknown_version;
  const Bytes body = bytes.first(bytes.size() - kChecksumSize);
  if (crc32c(body) != read_field<std::uint32_t>(bytes.data() + body.size())) return DecodeStatus::bad_checksum;

  const auto index_id = next_field<std::uint8_t>(at);
  frame.index_codec = find_id(index_codecs(), index_id);
  const auto value_id = next_field<std::uint8_t>(at);
  const bool is_packed = value_id >= kPacked;
  frame.value_format = find_id(value_format_table(), is_packed ? value_id - kPacked : value_id);
  if ((frame.index_codec == nullptr && index_id != kFull) || frame.value_format == nullptr ||
      (is_packed && frame.value_format->packing == Packing::none)) {
    return DecodeStatus::unknown_codec;
  }
  const auto zero = next_field<std::uint8_t>(at);
  frame.dim = next_field<std::uint64_t>(at);
  const auto count = next_field<std::uint64_t>(at);
  if (zero != 0 || frame.dim > kMostDim || count > frame.dim || (index_id == kFull && count != frame.dim)) {
    return DecodeStatus::bad_header;
  }
  frame.count = count;
  const Bytes rest = body.subspan(kHeaderSize);
  return is_packed ? parse_packed_values(rest, frame) : parse_values(rest, frame);
}

// Resizes to exactly `size`. A plain resize() of a growing vector may reserve twice as much.
template <class T>
void resize_exactly(std::vector<T>& items, std::size_t size) {
  if (size > items.capacity()) items = {};
  items.resize(size);
}

// The frame has enough bytes for `count` values by now, so allocating for them is safe: no format has more than four
// values in a byte, packed or not.
DecodeStatus read(const Frame& frame, SparseVector& vector, Pool* pool) {
  vector.dim = frame.dim;
  vector.draw.units.clear();
  resize_exactly(vector.values, frame.count);
  resize_exactly(vector.indices, frame.index_codec == nullptr ? 0 : frame.count);
  bool has_values = false;
  bool has_indices = false;
  for_each_item(pool_for(frame.count, pool), 2, [&](std::size_t section, std::size_t) {
    if (section == 0) {
      has_values = frame.packed ? unpack_values(*frame.value_format, *frame.packed, vector.values)
                                : frame.value_format->decode(frame.values.data(), frame.block, vector.values);
    } else {
      has_indices =
          frame.index_codec == nullptr ? frame.indices.empty() : frame.index_codec->decode(frame.indices, vector);
    }
  });
  if (!has_values) return DecodeStatus::bad_values;
  return has_indices ? DecodeStatus::ok : DecodeStatus::bad_indices;
}

// Throws UsageError unless vector.is_valid().
void check(const SparseVector& vector) {
  const std::vector<std::uint32_t>& indices = vector.indices;
  const bool fits = indices.size() == vector.size() && (indices.empty() || indices.back() < vector.dim);
  if (vector.is_full() || (fits && kernels::are_ascending(indices))) return;
  throw UsageError(fmt::format(
      "[codec] the vector is not valid: it needs one index for each of its {} values, strictly ascending and "
      "below {}",
      vector.size(), vector.dim));
}

}  // namespace

struct Codec::Parts {
  CodecChoice choice;
  Buffer<std::byte> best;
  Buffer<std::byte> next;
  Buffer<std::byte> plain;
  Buffer<std::byte> packed;
  SupportOf support;
  std::vector<const IndexCodec*> may_be_shortest;

  std::vector<SizeEstimate> estimates;  // of all index codecs

  void list_short_ones(const Support& given);
  std::size_t encode_indices(const SparseVector& vector, const IndexCodec*& used);
  std::size_t encode_shortest(const SparseVector& vector, const Support& given, const IndexCodec*& used);
  Bytes encode_values(std::span<const float> values, bool pack, float* received, bool& is_packed);
};

Codec::Codec(std::string_view spec) : parts_(std::make_unique<Parts>()) {
  kernels::choose_simd();  // may throw; the kernels must not
  parts_->choice = parse_codec(spec);
}

bool Codec::rounds() const noexcept { return parts_->choice.value_format->rounds; }

Codec::~Codec() = default;
Codec::Codec(Codec&&) noexcept = default;
Codec& Codec::operator=(Codec&&) noexcept = default;

// Leaves the section in `best` and its codec in `used`; returns its size.
std::size_t Codec::Parts::encode_indices(const SparseVector& vector, const IndexCodec*& used) {
  const Support& given = support.look_at(vector);
  if (choice.index_codec != nullptr) {
    const auto size = choice.index_codec->encode(vector, given, ~std::size_t{0}, best);
    if (!size) throw_not_drawn(*choice.index_codec);
    used = choice.index_codec;
    return *size;
  }
  return encode_shortest(vector, given, used);
}

// Lists the index codecs that `auto` tries: that with the lowest estimate, and others that may be as short.
void Codec::Parts::list_short_ones(const Support& given) {
  constexpr double kClose = 1.003;  // estimates are from samples
  const std::span<const IndexCodec> all = index_codecs();
  double lowest = std::numeric_limits<double>::infinity();
  const IndexCodec* first = &all.front();
  estimates.clear();
  for (const IndexCodec& one : all) {
    estimates.push_back(one.estimate(given));
    const double counted = estimates.back().bytes / one.preference;
    if (counted >= lowest) continue;
    lowest = counted;
    first = &one;
  }
  const double most = std::max(1.0, kClose / first->preference) * lowest;
  may_be_shortest.clear();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (&all[i] == first || estimates[i].least <= most) may_be_shortest.push_back(&all[i]);
  }
}

std::size_t Codec::Parts::encode_shortest(const SparseVector& vector, const Support& given, const IndexCodec*& used) {
  list_short_ones(given);
  std::size_t least = ~std::size_t{0};
  for (const IndexCodec* const one : may_be_shortest) {
    const auto size = one->encode(vector, given, least - 1, next);
    if (!size) continue;
    least = *size;
    used = one;
    std::swap(best, next);
    if (least == 0) break;
  }
  return least;
}

// The section of values, in `plain` or in `packed`.
Bytes Codec::Parts::encode_values(std::span<const float> values, bool pack, float* received, bool& is_packed) {
  const std::size_t size = choice.value_format->size(values.size(), choice.block);
  const bool needs_plain = choice.value_format->encode != encode_f32 || received != nullptr;  // else it is `values`
  // Also for `packed` while packing does not pay yet, and with room for short vectors of changing length: later steps
  // shall not allocate.
  if (needs_plain) plain.reserve_with_room(size + 256);
  if (pack) packed.reserve_with_room(size + 256);
  if (needs_plain) choice.value_format->encode(values, choice.block, plain.data(), received);
  const Bytes section = needs_plain ? Bytes(plain.data(), size) : std::as_bytes(values);
  const auto shorter =
      pack ? pack_values(*choice.value_format, values.size(), choice.block, section, packed) : std::nullopt;
  is_packed = shorter.has_value();
  return is_packed ? Bytes(packed.data(), *shorter) : section;
}

void Codec::encode(const SparseVector& vector, std::vector<std::byte>& frame, std::vector<float>* received,
                   Pool* pool) {
  const StandardFloatMode mode;
  check(vector);
  if (vector.dim > kMostDim) {
    throw UsageError(fmt::format("[codec] a vector of {} entries is too long; split it into vectors of fewer than 2^32",
                                 vector.dim));
  }
  check_finite(vector);
  const CodecChoice& choice = parts_->choice;
  const IndexCodec* used = nullptr;
  // A vector that lists all its entries is sent as a full one, unless the spec names an index codec.
  const bool is_complete = vector.size() == vector.dim && vector.dim != 0 && choice.index_codec == nullptr;
  const bool is_full = vector.is_full() || is_complete;
  if (received != nullptr) resize_with_room(*received, vector.size());
  std::size_t index_size = 0;
  bool is_packed = false;
  Bytes values;
  for_each_item(pool_for(vector.size(), pool), 2, [&](std::size_t section, std::size_t) {
    if (section == 1) {
      values = parts_->encode_values(vector.values, is_full ? choice.pack_full : choice.pack_sparse,
                                     received == nullptr ? nullptr : received->data(), is_packed);
    } else if (!is_full) {
      index_size = parts_->encode_indices(vector, used);
    }
  });
  resize_with_room(frame, kHeaderSize + values.size() + index_size + kChecksumSize);

  std::byte* at = frame.data();
  write_header(at, used == nullptr ? kFull : used->id,
               static_cast<std::uint8_t>(choice.value_format->id + (is_packed ? kPacked : 0)), vector.dim,
               vector.size());
  at = std::copy(values.begin(), values.end(), at);
  at = std::copy_n(parts_->best.data(), index_size, at);
  write_field(at, crc32c(Bytes(frame).first(frame.size() - kChecksumSize)));
}

DecodeStatus decode(std::span<const std::byte> bytes, SparseVector& vector, Pool* pool) {
  const StandardFloatMode mode;
  Frame frame;
  DecodeStatus status = parse(bytes, frame);
  try {
    if (status == DecodeStatus::ok) status = read(frame, vector, pool);
  } catch (...) {  // out of memory
    vector.clear(0);
    throw;
  }
  if (status != DecodeStatus::ok) vector.clear(0);
  return status;
}

DecodeStatus inspect(std::span<const std::byte> bytes, FrameInfo& info) {
  SparseVector vector;
  Frame frame;
  if (const DecodeStatus status = parse(bytes, frame); status != DecodeStatus::ok) return status;
  if (const DecodeStatus status = read(frame, vector, nullptr); status != DecodeStatus::ok) return status;
  info.version = kVersion;
  info.codec = fmt::format("{}:values={}", frame.index_codec == nullptr ? "full" : frame.index_codec->info.name,
                           frame.value_format->info.name);
  if (frame.block != 0) info.codec += fmt::format(",block={}", frame.block);
  if (frame.packed) info.codec += ",pack=yes";
  info.dim = frame.dim;
  info.count = frame.count;
  info.frame_bytes = bytes.size();
  info.header_bytes = kHeaderSize + kChecksumSize;
  info.value_bytes = frame.values.size();
  info.index_bytes = frame.indices.size();
  info.value_numbers = frame.packed ? bytes_of(frame.packed->numbers) : NumberBytes();
  const bool has_numbers = frame.index_codec != nullptr && frame.index_codec->section == IndexSection::numbers;
  info.index_numbers = has_numbers ? bytes_of_section(frame.indices) : NumberBytes();
  return DecodeStatus::ok;
}

std::string_view describe(DecodeStatus status) noexcept {
  switch (status) {
    case DecodeStatus::ok:
      return "a valid frame";
    case DecodeStatus::too_short:
      return "too short: the frame is truncated";
    case DecodeStatus::not_a_frame:
      return "not a frame: frames begin with SWFR";
    case DecodeStatus::unknown_version:
      return "the frame has a version that this program cannot read";
    case DecodeStatus::bad_checksum:
      return "the checksum does not match: the frame was truncated or changed";
    case DecodeStatus::unknown_codec:
      return "the frame has a codec that this program does not know";
    case DecodeStatus::bad_header:
      return "the header has an impossible dim or count";
    case DecodeStatus::bad_values:
      return "the values are not finite, or encoded as no encoder does";
    case DecodeStatus::bad_indices:
      return "the indices are not ascending and below dim, or encoded as no encoder does";
  }
  return "unknown status";
}

double entropy_bound_index_bits(std::uint64_t dim, std::uint64_t count) noexcept {
  if (count == 0 || count >= dim) return 0;
  const auto n = static_cast<double>(dim);
  const auto k = static_cast<double>(count);
  const auto log_factorial = [](double x) {
    int sign = 0;  // std::lgamma would write it to a global variable
    return ::lgamma_r(x + 1, &sign);
  };
  return (log_factorial(n) - log_factorial(k) - log_factorial(n - k)) / std::log(2.0) / k;
}

}  // namespace sparsewire
