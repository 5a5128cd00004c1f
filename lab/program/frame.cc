#include "frame.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "sparsewire/errors.h"

namespace sparsewire::cli {
namespace {

// docs/reference/wire_format.md: a magic, a version, three bytes, dim:u64, count:u64; after the entries a checksum of 4
// bytes.
constexpr std::size_t kSmallestFrame = 28;
constexpr std::size_t kDimAt = 8;
constexpr std::uint64_t kMostDim = 0xFFFFFFFF;

// More bytes than any encoder writes for this many entries: values and indices take up to 16 bytes each, and the
// longest list of units 8 each.
std::uint64_t longest_frame(std::uint64_t dim) { return 1024 + 40 * std::min(dim, kMostDim); }

}  // namespace

files::Bytes read_frame(const std::string& path) {
  files::Input input(path);
  files::Bytes bytes = input.read(kSmallestFrame);
  FrameInfo info;
  const DecodeStatus status = inspect(bytes.span(), info);
  if (status == DecodeStatus::not_a_frame || status == DecodeStatus::unknown_version) check_frame(status, path);
  if (bytes.size < kSmallestFrame) return bytes;
  std::uint64_t dim = 0;
  std::memcpy(&dim, bytes.data() + kDimAt, sizeof dim);
  input.read_until(longest_frame(dim), bytes);
  return bytes;
}

void check_frame(DecodeStatus status, const std::string& path) {
  if (status != DecodeStatus::ok) throw UsageError(fmt::format("cannot read '{}': {}", path, describe(status)));
}

FrameSizes::FrameSizes(const FrameInfo& info)
    : header_bits(8 * static_cast<double>(info.count == 0 ? info.frame_bytes : info.header_bytes)),
      entropy_bound_index_bits(sparsewire::entropy_bound_index_bits(info.dim, info.count)) {
  if (info.count == 0) return;
  const auto count = static_cast<double>(info.count);
  bits_per_entry = 8 * static_cast<double>(info.frame_bytes) / count;
  index_bits_per_entry = 8 * static_cast<double>(info.index_bytes) / count;
  value_bits_per_entry = 8 * static_cast<double>(info.value_bytes) / count;
}

Json frame_json(const FrameInfo& info) {
  const FrameSizes sizes(info);
  return {{"dim", info.dim},
          {"kept", info.count},
          {"frame_bytes", info.frame_bytes},
          {"bits_per_entry", sizes.bits_per_entry},
          {"index_bits_per_entry", sizes.index_bits_per_entry},
          {"value_bits_per_entry", sizes.value_bits_per_entry},
          {"header_bits", static_cast<std::uint64_t>(sizes.header_bits)},
          {"entropy_bound_index_bits", sizes.entropy_bound_index_bits},
          {"codec", info.codec}};
}

}  // namespace sparsewire::cli
