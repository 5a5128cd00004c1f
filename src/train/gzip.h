// Data files that were compressed with gzip.
#pragma once

#include <string>
#include <string_view>

namespace sparsewire::train {

// Whether they begin as a gzip file does.
bool is_gzip(std::string_view bytes) noexcept;

// The content of a gzip file, which may consist of several parts, as `cat a.gz b.gz` makes it. `name` is for messages.
// Throws UsageError if it is cut short, damaged, or if something else follows. COST: memory as the content is unpacked.
std::string gunzip(std::string_view bytes, std::string_view name);

}  // namespace sparsewire::train
