// What a codec's rounding does to values, where no frame is made: a rank sends none to itself.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "codec/codec_spec.h"
#include "core/buffer.h"

namespace sparsewire {

// THREADS: one caller at a time.
class Rounding {
 public:
  // Throws UsageError.
  explicit Rounding(std::string_view codec) : choice_(parse_codec(codec)) {}

  // Replaces `received` by the values that decode() would return of the frame of `vector`; leaves it as it is if the
  // codec rounds nothing. Throws what Codec::encode() throws for a valid vector. COST: allocates nothing in the steady
  // state.
  void round(const SparseVector& vector, std::vector<float>& received);

 private:
  CodecChoice choice_;
  Buffer<std::byte> section_;
};

}  // namespace sparsewire
