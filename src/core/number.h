// Numbers from text.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>

namespace sparsewire {

// A number that is all of `given`: nothing before or behind it, no sign that the type does not have.
template <class Number>
std::optional<Number> parse_number(std::string_view given) {
  Number number{};
  const char* const end = given.data() + given.size();
  const auto [stop, error] = std::from_chars(given.data(), end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

}  // namespace sparsewire
