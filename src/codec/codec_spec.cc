#include "codec/codec_spec.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/names.h"
#include "sparsewire/errors.h"
#include "sparsewire/spec.h"

namespace sparsewire {
namespace {

template <class Table>
auto* find_name(const Table& table, std::string_view name) {
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const auto& entry) { return entry.info.name == name; });
  return found == table.end() ? nullptr : &*found;
}

const ValueFormat& read_format(Spec& spec) {
  std::vector<std::string_view> names;
  for (const CodecInfo& info : value_formats()) names.push_back(info.name);
  return *find_name(value_format_table(), spec.choice("values", names));
}

// Whether values are packed: "no", "yes", or "sparse", where they are not those of full vectors.
std::string read_pack(Spec& spec) {
  return spec.name() == auto_codec().name ? spec.choice("pack", {"sparse", "yes", "no"})
                                          : spec.choice("pack", {"no", "yes", "sparse"});
}

// "int8, int4 and int2"
std::string names_with_blocks() {
  std::vector<std::string_view> names;
  for (const ValueFormat& format : value_format_table()) {
    if (format.has_blocks) names.push_back(format.info.name);
  }
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : i + 1 == names.size() ? " and " : ", ", names[i]);
  }
  return text;
}

}  // namespace

CodecChoice parse_codec(std::string_view text) {
  Spec spec(text);
  CodecChoice choice;
  choice.index_codec = find_name(index_codecs(), spec.name());
  if (choice.index_codec == nullptr && spec.name() != auto_codec().name) {
    const ValueFormat* const format = find_name(value_format_table(), spec.name());
    throw UsageError(
        fmt::format("'{}' is not a codec; there are {}{}", spec.name(), names_of(codecs()),
                    format == nullptr ? "" : fmt::format("; for the value format write {}", format->info.example)));
  }
  choice.value_format = &read_format(spec);
  const auto block = spec.integer("block", kLeastBlock, kMostBlock);
  if (block && !choice.value_format->has_blocks) {
    spec.fail(
        fmt::format("block= is valid with {} only, not with {}", names_with_blocks(), choice.value_format->info.name));
  }
  if (choice.value_format->has_blocks) choice.block = block.value_or(kDefaultBlock);
  const std::string pack = read_pack(spec);
  choice.pack_sparse = pack != "no";
  choice.pack_full = pack == "yes";
  spec.finish();
  return choice;
}

void throw_not_drawn(const IndexCodec& codec) {
  throw UsageError(
      fmt::format("[{}] these indices were not drawn by randomk, or only a part of them is sent (by the exchange "
                  "sharded): take the codec auto, or the sparsifier randomk with the exchange allgather or server",
                  codec.info.name));
}

void check_finite(const SparseVector& vector) {
  if (all_finite(vector.values)) return;
  const auto bad = std::find_if(vector.values.begin(), vector.values.end(), [](float v) { return !std::isfinite(v); });
  const auto i = static_cast<std::size_t>(bad - vector.values.begin());
  throw UsageError(fmt::format("[codec] the value at index {} is {}", vector.index(i), *bad));
}

const ValueFormat& value_format_of(std::string_view codec) {
  Spec spec(codec);
  return read_format(spec);
}

// Packing takes 9 to 5 bits off a float, the fewer the more of the entries are sent, and hardly anything off an
// integer. 7 is right for a third of them (docs/archive/benchmarks.md).
ValueBits expected_value_bits(std::string_view codec) {
  constexpr double kPackedAway = 7;
  Spec spec(codec);
  const ValueFormat& format = read_format(spec);
  const std::string pack = read_pack(spec);
  const bool is_float = format.packing != Packing::none && format.packing != Packing::integers;
  const double packed = is_float ? format.bits - kPackedAway : format.bits;
  return {.of_some = pack == "no" ? format.bits : packed, .of_all = pack == "yes" ? packed : format.bits};
}

const ValueFormat& reducible_format(const ValueFormat& format) noexcept {
  const ValueFormat* best = &exact_format();
  for (const ValueFormat& other : value_format_table()) {
    if (other.reduced_as != ReducedAs::nothing && other.bits >= format.bits && other.bits < best->bits) best = &other;
  }
  return *best;
}

const ValueFormat& exact_format() noexcept {
  const auto table = value_format_table();
  return *std::find_if(table.begin(), table.end(), [](const ValueFormat& format) { return !format.rounds; });
}

}  // namespace sparsewire
