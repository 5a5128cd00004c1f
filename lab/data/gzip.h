// Data files that were compressed with gzip.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace sparsewire::train {

// Whether they begin as a gzip file does.
bool is_gzip(std::string_view bytes) noexcept;

// The content of a gzip file, which may consist of several parts, as `cat a.gz b.gz` makes it. `name` is for messages.
// Only the first `most` bytes of the content are unpacked, and what follows is not looked at. Throws UsageError if the
// file is cut short, damaged, or if something else follows. COST: memory as the content is unpacked.
std::string gunzip(std::string_view bytes, std::string_view name,
                   std::uint64_t most = std::numeric_limits<std::uint64_t>::max());

}  // namespace sparsewire::train
