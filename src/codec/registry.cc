#include <array>

#include "codec/index_codec.h"
#include "codec/value_format.h"

namespace sparsewire {
namespace {

constexpr IndexCodec kIndexCodecs[] = {
#define INDEX_CODEC(id, name, preference, section, summary, example) \
  {{#name, summary, example}, id, preference, IndexSection::section, estimate_##name, encode_##name, decode_##name},
#include "codec/index_codecs.def"
#undef INDEX_CODEC
};

constexpr CodecInfo kAuto = {"auto", "the shortest of the following", "auto:values=bf16"};

constexpr CodecInfo kCodecs[] = {
    kAuto,
#define INDEX_CODEC(id, name, preference, section, summary, example) {#name, summary, example},
#include "codec/index_codecs.def"
#undef INDEX_CODEC
};

constexpr ValueFormat kValueFormats[] = {
#define VALUE_FORMAT(id, name, bits, has_blocks, rounds, reduced_as, packing, summary) \
  {{#name, summary, "auto:values=" #name},                                             \
   id,                                                                                 \
   bits,                                                                               \
   has_blocks,                                                                         \
   rounds,                                                                             \
   ReducedAs::reduced_as,                                                              \
   Packing::packing,                                                                   \
   size_##name,                                                                        \
   encode_##name,                                                                      \
   decode_##name},
#include "codec/value_formats.def"
#undef VALUE_FORMAT
};

constexpr CodecInfo kValueInfos[] = {
#define VALUE_FORMAT(id, name, bits, has_blocks, rounds, reduced_as, packing, summary) \
  {#name, summary, "auto:values=" #name},
#include "codec/value_formats.def"
#undef VALUE_FORMAT
};

}  // namespace

std::span<const IndexCodec> index_codecs() noexcept { return kIndexCodecs; }
std::span<const ValueFormat> value_format_table() noexcept { return kValueFormats; }
const CodecInfo& auto_codec() noexcept { return kAuto; }
std::span<const CodecInfo> codecs() noexcept { return kCodecs; }
std::span<const CodecInfo> value_formats() noexcept { return kValueInfos; }

}  // namespace sparsewire
