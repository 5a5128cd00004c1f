// Fuzzes Codec::encode(). The bytes choose a vector and a spec. After encoding and decoding, the vector has the values
// that `received` announced, and the slow reader of tests/reference reads the same vector.
#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "reference/half.h"
#include "reference/wire.h"
#include "require.h"
#include "sparsewire/codec.h"
#include "sparsewire/errors.h"

namespace sparsewire {
namespace {

constexpr std::size_t kMostEntries = 3000;

struct Choice {
  std::string codec;
  std::string format;
  std::string spec;
};

Choice choose(FuzzedDataProvider& from) {
  Choice choice;
  choice.codec = codecs()[from.ConsumeIntegralInRange<std::size_t>(0, codecs().size() - 1)].name;
  choice.format = value_formats()[from.ConsumeIntegralInRange<std::size_t>(0, value_formats().size() - 1)].name;
  choice.spec = choice.codec + ":values=" + choice.format;
  if (choice.format.starts_with("int") && from.ConsumeBool()) {
    choice.spec += ",block=" + std::to_string(from.ConsumeIntegralInRange(16, from.ConsumeBool() ? 100 : 65536));
  }
  choice.spec += from.ConsumeBool() ? ",pack=yes" : ",pack=no";
  return choice;
}

// Gaps up to 2^bits - 1, with a new choice of bits for every 64.
void put_indices(FuzzedDataProvider& from, std::uint64_t most_dim, std::size_t count, SparseVector& vector) {
  std::uint64_t next = 0;
  std::uint32_t most_gap = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (i % 64 == 0) most_gap = (std::uint32_t{1} << from.ConsumeIntegralInRange(0, 31)) - 1;
    const std::uint64_t index = next + from.ConsumeIntegralInRange<std::uint32_t>(0, most_gap);
    if (index >= most_dim) break;
    vector.indices.push_back(static_cast<std::uint32_t>(index));
    next = index + 1;
  }
  const std::uint64_t beyond = most_dim - next;
  vector.dim = next + std::min<std::uint64_t>(
                          beyond, from.ConsumeIntegral<std::uint32_t>() >> from.ConsumeIntegralInRange(0, 31));
}

void draw_indices(FuzzedDataProvider& from, std::uint64_t most_dim, std::size_t count, SparseVector& vector) {
  vector.draw.seed = from.ConsumeIntegral<std::uint64_t>();
  vector.draw.step = from.ConsumeIntegral<std::uint64_t>();
  vector.draw.rank = from.ConsumeIntegral<std::uint32_t>();
  vector.draw.role = from.ConsumeIntegral<std::uint8_t>();
  const std::size_t units = from.ConsumeIntegralInRange<std::size_t>(1, 4);
  for (std::size_t u = 0; u < units; ++u) {
    const auto k = from.ConsumeIntegralInRange<std::uint32_t>(0, static_cast<std::uint32_t>(count / units));
    const auto most = static_cast<std::uint32_t>(most_dim / units);
    const auto size =
        std::max(k, from.ConsumeIntegralInRange<std::uint32_t>(0, most) >> from.ConsumeIntegralInRange(0, 31));
    for (const std::uint32_t position : reference::draw_positions(vector.draw, u, k, size)) {
      vector.indices.push_back(static_cast<std::uint32_t>(vector.dim + position));
    }
    vector.draw.units.push_back({size, k});
    vector.dim += size;
  }
}

void put_values(FuzzedDataProvider& from, std::size_t count, SparseVector& vector) {
  std::uint32_t last = 0;
  const bool repeat = from.ConsumeBool();
  const int near =
      from.ConsumeIntegralInRange(0, 24);  // bits in which neighbours differ, besides the sign: to be packed
  for (std::size_t i = 0; i < count; ++i) {
    if (!repeat || i % 16 == 0) last = from.ConsumeIntegral<std::uint32_t>();
    const std::uint32_t more = near == 0 ? 0 : (from.ConsumeIntegral<std::uint32_t>() >> (32 - near)) | last << 31;
    vector.values.push_back(std::bit_cast<float>(near == 0 ? last : 0x3F800000U + more));
  }
}

SparseVector make(FuzzedDataProvider& from, const Choice& choice) {
  const std::uint64_t most_dim = choice.codec == "bitmap" ? 1U << 13U : 0xFFFFFFFFU;
  const auto count = from.ConsumeIntegralInRange<std::size_t>(0, kMostEntries);
  SparseVector vector;
  switch (from.ConsumeIntegralInRange(0, 3)) {
    case 0:
      vector.dim = count;  // full
      put_values(from, count, vector);
      return vector;
    case 1:
      draw_indices(from, most_dim, count, vector);
      break;
    default:
      put_indices(from, most_dim, count, vector);
  }
  put_values(from, vector.indices.size(), vector);
  return vector;
}

float rounded(float x, const std::string& format) {
  if (format == "f16") return reference::from_f16(reference::to_f16(x));
  if (format == "bf16") return reference::from_bf16(reference::to_bf16(x));
  return x;
}

void check(FuzzedDataProvider& from) {
  const Choice choice = choose(from);
  const SparseVector vector = make(from, choice);
  require(vector.is_valid(), "the fuzz target makes valid vectors");
  const bool finite = std::all_of(vector.values.begin(), vector.values.end(), [](float x) { return std::isfinite(x); });
  const bool drawn = !vector.draw.units.empty();
  Codec codec(choice.spec);
  reference::Bytes frame;
  SparseVector expected = vector;
  try {
    codec.encode(vector, frame, &expected.values);
  } catch (const UsageError&) {
    require(!finite || (choice.codec == "seed" && !drawn), "a valid vector is not refused");
    return;
  }
  require(finite, "numbers that are not finite are refused");
  SparseVector decoded;
  require(decode(frame, decoded) == DecodeStatus::ok, "what was encoded can be decoded");
  require(same_bits(expected, decoded), "decode returns the values of `received`");
  if (!choice.format.starts_with("int")) {
    for (float& x : expected.values) x = 0;
    std::transform(vector.values.begin(), vector.values.end(), expected.values.begin(),
                   [&](float x) { return rounded(x, choice.format); });
    require(same_bits(expected, decoded), "values are rounded to nearest");
  }
  const auto slow = reference::read_frame(frame);
  require(slow.has_value() && same_bits(slow->vector, decoded), "the reference reads the same vector");
}

}  // namespace
}  // namespace sparsewire

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FuzzedDataProvider from(data, size);
  sparsewire::check(from);
  return 0;
}
