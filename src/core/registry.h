// Finding a choice by its name.
#pragma once

#include <fmt/core.h>

#include <cstddef>
#include <string>
#include <string_view>

#include "sparsewire/errors.h"

namespace sparsewire {

// The number of the one in `infos` that has that name. Throws UsageError: "'x' is not an exchange; there are dense,
// server", where `what` is "an exchange", and `more` names choices that are not in the list.
template <class Infos>
std::size_t find_by_name(const Infos& infos, std::string_view name, std::string_view what, std::string_view more = {}) {
  std::string names;
  std::size_t number = 0;
  for (const auto& info : infos) {
    if (info.name == name) return number;
    names += fmt::format("{}{}", number == 0 ? "" : ", ", info.name);
    ++number;
  }
  if (!more.empty()) names += fmt::format(", {}", more);
  throw UsageError(fmt::format("'{}' is not {}; there are {}", name, what, names));
}

}  // namespace sparsewire
