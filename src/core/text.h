// Messages put together from words and numbers: text("[topk] ratio=", 7, " is not in (0, 1]").
#pragma once

#include <sstream>
#include <string>

namespace sparsewire {

template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream stream;
  (stream << ... << parts);
  return stream.str();
}

}  // namespace sparsewire
