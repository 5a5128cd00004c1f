// Lists in one string: "1,2,1", "4/2/1", "lr,sparsifier".
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/number.h"

namespace sparsewire {

// What stands between the separators: at least one piece, and any of them may be empty.
inline std::vector<std::string> split_list(std::string_view written, char separator) {
  std::vector<std::string> pieces;
  for (std::size_t at = 0; at <= written.size();) {
    const std::size_t end = std::min(written.find(separator, at), written.size());
    pieces.emplace_back(written.substr(at, end - at));
    at = end + 1;
  }
  return pieces;
}

// The numbers of such a list; nothing if a piece is anything else than a finite number.
inline std::optional<std::vector<double>> parse_numbers(std::string_view written, char separator) {
  std::vector<double> numbers;
  for (const std::string& piece : split_list(written, separator)) {
    const auto number = parse_number<double>(piece);
    if (!number || !std::isfinite(*number)) return std::nullopt;
    numbers.push_back(*number);
  }
  return numbers;
}

}  // namespace sparsewire
