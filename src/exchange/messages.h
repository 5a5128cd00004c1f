// The messages of a step: a frame and a trailer behind it (step_trailer.h), written and read alike by every exchange.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "exchange/step_trailer.h"
#include "sparsewire/codec.h"
#include "sparsewire/sparse_vector.h"

namespace sparsewire {

// A worker's message: the frame of `sent`, unless it failed, and its trailer. `received` as Exchange::run gives it.
// Returns the size of the frame.
std::size_t write_message(Codec& codec, const SparseVector& sent, const StepTrailer& trailer,
                          std::vector<float>& received, Message& message);

// Decodes a frame from rank `from`; or says why it is no vector of `dim` entries.
std::optional<Failure> decode_from(std::span<const std::byte> frame, int from, std::uint64_t dim, SparseVector& vector);

// The lowest index at which the sum of finite entries is not finite; nothing if it is finite everywhere.
std::optional<std::uint64_t> find_overflow(const SparseVector& total) noexcept;

}  // namespace sparsewire
