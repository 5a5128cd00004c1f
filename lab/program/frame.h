// Frames as files, and the sizes that `compress` and `inspect` report.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "files/input.h"
#include "options.h"
#include "sparsewire/codec.h"

namespace sparsewire::cli {

// Reads a frame from a file or a pipe. It stops early if the bytes are not a frame, or more than its header allows: a
// device or a pipe may never end. Throws UsageError.
files::Bytes read_frame(const std::string& path);

// Throws UsageError with the name of the file unless the status is ok.
void check_frame(DecodeStatus status, const std::string& path);

// The sizes of a frame per entry, as people compare them. In a frame without entries all bits count as the header's, so
// that the three parts always add up to the frame.
struct FrameSizes {
  explicit FrameSizes(const FrameInfo& info);

  double bits_per_entry = 0;
  double index_bits_per_entry = 0;
  double value_bits_per_entry = 0;
  double header_bits = 0;
  double entropy_bound_index_bits = 0;
};

// With the keys that docs/reference/commands.md lists.
Json frame_json(const FrameInfo& info);

}  // namespace sparsewire::cli
