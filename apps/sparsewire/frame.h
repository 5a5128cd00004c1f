// Frames as files, and what `compress` and `inspect` say about one.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "options.h"
#include "sparsewire/codec.h"

namespace sparsewire::cli {

// Throws UsageError with the name of the file unless ok.
void check_frame(DecodeStatus status, const std::string& path);

// The sizes of a frame for each entry, as people compare them. Without entries all bits are the header's, so that the
// three parts always add up to the frame.
struct FrameSizes {
  explicit FrameSizes(const FrameInfo& info);

  double bits_per_entry = 0;
  double index_bits_per_entry = 0;
  double value_bits_per_entry = 0;
  double header_bits = 0;
  double entropy_bound_index_bits = 0;
};

// The keys that docs/cli.md promises.
Json frame_json(const FrameInfo& info);

}  // namespace sparsewire::cli
