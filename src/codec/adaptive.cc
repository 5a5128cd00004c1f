// The gaps between indices as numbers in blocks: the code follows the density of the support from place to place.
#include "codec/index_codec.h"
#include "codec/numbers.h"
#include "codec/support.h"
#include "kernels/entries.h"

namespace sparsewire {

NumberChoice number_code_for(const Support& support) {
  if (!support.numbers) support.numbers = choose_number_code(support.gaps, 0);
  return *support.numbers;
}

SizeEstimate estimate_adaptive(const Support& support) {
  return kNumbersHead + number_code_for(support).bits / 8 * static_cast<double>(support.count);
}

std::optional<std::size_t> encode_adaptive(const SparseVector& vector, const Support& support, std::size_t limit,
                                           Buffer<std::byte>& out) {
  const std::span<const std::uint32_t> indices = vector.indices;
  return write_number_section(number_code_for(support).code, indices.size(), 0, limit, out,
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
