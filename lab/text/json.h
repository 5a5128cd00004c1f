// JSON of files that anybody may have written or damaged.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace sparsewire::train {

using Json = nlohmann::ordered_json;

// Values nested deeper are refused: nlohmann's functions call themselves for every level, and 100,000 levels are more
// than a stack holds. Our own files have 3.
inline constexpr int kDeepestJson = 64;

enum class JsonComments : bool { refused, allowed };

// Throws UsageError: "parse error at line 1, column 8: ...", "nested more than 64 levels deep".
Json parse_json(std::string_view text, JsonComments comments = JsonComments::refused);

// In one line; what is not UTF-8 is replaced.
std::string shown(const Json& value);

}  // namespace sparsewire::train
