// The gaps between indices in Golomb code: within 0.3 % of the entropy of a random support.
#include "kernels/golomb.h"

#include <cstring>

#include "codec/divisor.h"
#include "codec/fields.h"
#include "codec/index_codec.h"
#include "codec/support.h"

namespace sparsewire {
namespace {

using kernels::kGolombLanes;

constexpr std::size_t kLeastForLanes = 1024;  // from this count on, four streams: 12 bytes more, a third of the time
constexpr std::size_t kLaneTable = sizeof(std::uint32_t) * (kGolombLanes - 1);

double mean_of_gaps(std::size_t count, std::uint64_t sum) {
  return count == 0 ? 0 : static_cast<double>(sum) / static_cast<double>(count);
}

}  // namespace

kernels::GolombCode divisor_for(const Support& support) {
  if (!support.divisor) {
    const double mean = mean_of_gaps(support.count, support.sum_of_gaps());
    support.divisor = search_divisor(support.divisor_gaps, mean);
  }
  return *support.divisor;
}

// The sample is the one of `adaptive`, so that the difference of the two is more accurate than each of them.
SizeEstimate estimate_golomb(const Support& support) {
  std::array<float, kernels::kMostNumberSample> sample;
  const std::size_t size = support.gaps.size();
  std::transform(support.gaps.begin(), support.gaps.end(), sample.begin(), kernels::golomb_sample);
  const auto bits = kernels::golomb_cost(divisor_for(support), std::span(sample).first(size));
  const double each = size == 0 ? 0 : static_cast<double>(bits) / static_cast<double>(size);
  return static_cast<double>(sizeof(std::uint32_t) + (support.count < kLeastForLanes ? 0 : kLaneTable + 2)) +
         each / 8 * static_cast<double>(support.count);
}

std::optional<std::size_t> encode_golomb(const SparseVector& vector, const Support& support, std::size_t limit,
                                         Buffer<std::byte>& out) {
  const std::span<const std::uint32_t> indices = vector.indices;
  const std::size_t count = indices.size();
  const kernels::GolombCode code = divisor_for(support);
  const std::size_t lanes = count < kLeastForLanes ? 1 : kGolombLanes;
  out.reserve_with_room(sizeof(std::uint32_t) + kLaneTable + lanes + most_bytes(code, count, support.sum_of_gaps()));

  std::byte* table = out.data();
  write_field(table, code.divisor());
  std::byte* end = table + (lanes == 1 ? 0 : kLaneTable);
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    std::byte* const begin = end;
    end = kernels::golomb_encode(code, indices, lane, lanes, begin);
    if (lane + 1 < lanes) write_field(table, static_cast<std::uint32_t>(end - begin));
  }
  const auto size = static_cast<std::size_t>(end - out.data());
  if (size > limit) return std::nullopt;
  return size;
}

bool decode_golomb(Bytes section, SparseVector& vector) {
  const std::size_t count = vector.indices.size();
  const bool has_lanes = count >= kLeastForLanes;
  if (section.size() < sizeof(std::uint32_t) + (has_lanes ? kLaneTable : 0)) return false;
  const std::byte* at = section.data();
  const auto divisor = next_field<std::uint32_t>(at);
  if (divisor == 0) return false;
  const kernels::GolombCode code(divisor);

  if (!has_lanes) {
    kernels::BitReader reader(section.subspan(sizeof(std::uint32_t)));
    std::uint64_t next = 0;  // the lowest possible value of the next index
    for (std::uint32_t& index : vector.indices) {
      std::uint64_t gap;
      if (next >= vector.dim || !reader.get(code, vector.dim - 1 - next, gap)) return false;
      index = static_cast<std::uint32_t>(next + gap);
      next += gap + 1;
    }
    return reader.is_finished();
  }

  const Bytes streams = section.subspan(sizeof(std::uint32_t) + kLaneTable);
  std::array<std::size_t, kGolombLanes + 1> begins{};
  for (std::size_t lane = 1; lane < kGolombLanes; ++lane) {
    const std::size_t size = next_field<std::uint32_t>(at);
    if (size > streams.size() - begins[lane - 1]) return false;
    begins[lane] = begins[lane - 1] + size;
  }
  begins[kGolombLanes] = streams.size();
  return kernels::golomb_decode(code, streams, begins, vector.dim, count, vector.indices.data());
}

}  // namespace sparsewire
