// Parses numbers.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>

namespace sparsewire {

// The number that `given` consists of; nothing if there is anything else in `given`, or if the number does not fit the
// type.
template <class Number>
std::optional<Number> parse_number(std::string_view given) {
  Number number{};
  const char* const end = given.data() + given.size();
  const auto [stop, error] = std::from_chars(given.data(), end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

}  // namespace sparsewire
