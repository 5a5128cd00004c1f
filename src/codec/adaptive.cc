// The gaps between indices as numbers in blocks: the code follows the density of the support from place to place.
#include "codec/index_codec.h"
#include "codec/numbers.h"
#include "kernels/entries.h"

namespace sparsewire {
namespace {

NumberChoice code_for_gaps(std::span<const std::uint32_t> indices) noexcept {
  std::array<std::uint32_t, kMostNumberSample> sample;
  std::size_t size = 0;
  kernels::number_sample(indices.size()).for_each([&](std::size_t i) { sample[size++] = gap_before(indices, i); });
  return choose_number_code(std::span(sample).first(size), 0);
}

}  // namespace

SizeEstimate estimate_adaptive(const Support& support) {
  return kNumbersHead + choose_number_code(support.gaps, 0).bits / 8 * static_cast<double>(support.count);
}

std::optional<std::size_t> encode_adaptive(const SparseVector& vector, std::size_t limit, Buffer<std::byte>& out) {
  const std::span<const std::uint32_t> indices = vector.indices;
  return write_number_section(code_for_gaps(indices).code, indices.size(), 0, limit, out,
                              [&](std::size_t begin, std::span<std::uint32_t> gaps) {
                                gaps[0] = gap_before(indices, begin);
                                kernels::find_gaps(indices.data() + begin + 1, gaps.subspan(1));
                              });
}

bool decode_adaptive(Bytes section, SparseVector& vector) {
  const std::span<std::uint32_t> indices = vector.indices;
  kernels::NumberCode code;
  kernels::NumberReader reader;
  if (!parse_numbers(section, indices.size(), 0, code, reader)) return false;
  return kernels::read_indices(code, reader, vector.dim, indices) && reader.is_finished();
}

}  // namespace sparsewire
