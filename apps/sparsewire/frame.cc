#include "frame.h"

#include <fmt/core.h>

#include "sparsewire/errors.h"

namespace sparsewire::cli {

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
