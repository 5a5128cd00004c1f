// Numbers of things, as texts show them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sparsewire {

// 25000000 as 25,000,000.
inline std::string grouped(std::uint64_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

// "1 run", "2,000 runs": `one` is the name of a single thing, whose plural ends in s.
inline std::string counted(std::uint64_t number, std::string_view one) {
  std::string text = grouped(number);
  text += ' ';
  text += one;
  if (number != 1) text += 's';
  return text;
}

}  // namespace sparsewire
