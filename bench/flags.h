// Parses the numeric flags of the benches.
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <string_view>

#include "sparsewire/errors.h"

namespace sparsewire::bench {

// Throws UsageError unless all of `value` is a number in [least, most].
template <class Number>
Number parse_flag(std::string_view flag, std::string_view value, Number least, Number most) {
  Number number{};
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || number < least || number > most) {
    throw UsageError(fmt::format("{}={} is not a number in [{}, {}]", flag, value, least, most));
  }
  return number;
}

}  // namespace sparsewire::bench
