// Runs of consecutive indices, each encoded as a gap and a length: for rows of an embedding and other supports that
// come in blocks.
#include <cmath>

#include "codec/divisor.h"
#include "codec/fields.h"
#include "codec/index_codec.h"
#include "kernels/golomb.h"

namespace sparsewire {
namespace {

constexpr std::size_t kRunsHead = 3 * sizeof(std::uint32_t);

// Calls visit(gap, length - 1) for every run, with the gap as it is on the wire, until visit returns false.
template <class Visit>
void for_each_run(std::span<const std::uint32_t> indices, Visit&& visit) {
  std::uint32_t gap = indices.empty() ? 0 : indices[0];
  std::uint32_t begin = 0;
  for (std::uint32_t i = 1; i <= indices.size(); ++i) {
    if (i < indices.size() && indices[i] == indices[i - 1] + 1) continue;
    if (!visit(gap, i - 1 - begin) || i == indices.size()) return;
    gap = indices[i] - indices[i - 1] - 2;
    begin = i;
  }
}

// A lower bound for the bits of the codes of `count` numbers that add up to `sum`: each quotient is more than
// number / divisor - 1.
std::uint64_t least_bits(const kernels::GolombCode& code, std::uint64_t count, std::uint64_t sum) {
  const std::uint64_t remainders = count * (code.divisor() - 1);  // at most
  return count * static_cast<std::uint64_t>(code.bits()) + (sum - std::min(sum, remainders)) / code.divisor();
}

// The entropy, in bits, of a geometric distribution with this mean, but at least 1. Golomb's code of any numbers with
// the mean takes about as much.
double golomb_bits(double mean) {
  return mean <= 0 ? 1 : std::max(1.0, std::log2(mean + 1) + mean * std::log2(1 + 1 / mean));
}

}  // namespace

SizeEstimate estimate_runs(const Support& support) {
  constexpr double kLess = 0.93;  // lengths that are all alike take less than expected
  if (support.count == 0) return static_cast<double>(kRunsHead);
  const auto runs = static_cast<double>(support.runs);
  const auto count = static_cast<double>(support.count);
  const double gap = (static_cast<double>(support.last) + 1 - count) / runs;
  const double expected = runs * (golomb_bits(gap) + golomb_bits(count / runs - 1)) / 8;
  return {kRunsHead + expected, kRunsHead + kLess * expected};
}

std::optional<std::size_t> encode_runs(const SparseVector& vector, const Support& support, std::size_t limit,
                                       Buffer<std::byte>& out) {
  const std::span<const std::uint32_t> indices = vector.indices;
  const std::size_t runs = support.runs;
  const std::uint64_t lengths = indices.size() - runs;
  const std::uint64_t gaps = indices.empty() ? 0 : indices.back() + 1 - indices.size() - (runs - 1);
  const auto gap_code = search_divisor({}, runs == 0 ? 0 : static_cast<double>(gaps) / static_cast<double>(runs));
  const auto length_code = search_divisor({}, runs == 0 ? 0 : static_cast<double>(lengths) / static_cast<double>(runs));
  const auto is_too_long = [&](std::size_t written, std::size_t runs_left, std::uint64_t gaps_left) {
    const std::size_t length_bits = runs_left * static_cast<std::size_t>(length_code.bits());
    return written + (least_bits(gap_code, runs_left, gaps_left) + length_bits) / 8 > limit;
  };
  if (is_too_long(kRunsHead, runs, gaps)) return std::nullopt;

  out.reserve_with_room(kRunsHead + most_bytes(gap_code, runs, gaps) + most_bytes(length_code, runs, lengths));
  std::byte* at = out.data();
  write_field(at, gap_code.divisor());
  write_field(at, length_code.divisor());
  write_field(at, static_cast<std::uint32_t>(runs));
  kernels::BitWriter writer(at);
  std::size_t runs_left = runs;
  std::uint64_t gaps_left = gaps;
  for_each_run(indices, [&](std::uint32_t gap, std::uint32_t more) {
    writer.put(gap_code, gap);
    writer.put(length_code, more);
    gaps_left -= gap;
    // Random supports take more bytes in this codec than in others. Checking now and then saves most of the work.
    const auto written = static_cast<std::size_t>(writer.end() - out.data()) - 1;  // whole bytes
    return --runs_left % 1024 != 0 || !is_too_long(written, runs_left, gaps_left);
  });
  if (runs_left > 0) return std::nullopt;
  const auto size = static_cast<std::size_t>(writer.end() - out.data());
  if (size > limit) return std::nullopt;
  return size;
}

bool decode_runs(Bytes section, SparseVector& vector) {
  if (section.size() < kRunsHead) return false;
  const std::byte* at = section.data();
  const auto gap_divisor = next_field<std::uint32_t>(at);
  const auto length_divisor = next_field<std::uint32_t>(at);
  const auto runs = next_field<std::uint32_t>(at);
  if (gap_divisor == 0 || length_divisor == 0) return false;
  const kernels::GolombCode gap_code(gap_divisor);
  const kernels::GolombCode length_code(length_divisor);

  kernels::BitReader reader(section.subspan(kRunsHead));
  const std::size_t count = vector.indices.size();
  std::size_t found = 0;
  std::uint64_t next = 0;  // the lowest possible value of the next index
  for (std::uint32_t run = 0; run < runs; ++run) {
    std::uint64_t gap;
    std::uint64_t more;
    if (found == count || next >= vector.dim || !reader.get(gap_code, vector.dim - 1 - next, gap)) return false;
    const std::uint64_t begin = next + gap;
    if (!reader.get(length_code, std::min(count - found, vector.dim - begin) - 1, more)) return false;
    for (std::uint64_t i = 0; i <= more; ++i) vector.indices[found++] = static_cast<std::uint32_t>(begin + i);
    next = begin + more + 2;
  }
  return found == count && reader.is_finished();
}

}  // namespace sparsewire
