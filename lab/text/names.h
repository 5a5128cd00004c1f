// Finds an item of a list by its name.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "sparsewire/errors.h"

namespace sparsewire {

// The names of the items, as a comma-separated list.
template <class Infos>
std::string names_of(const Infos& infos) {
  std::vector<std::string_view> names;
  for (const auto& info : infos) names.push_back(info.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

// The position of the item in `infos` that is called `name`. Throws UsageError if there is none: "'x' is not an
// exchange; there are dense, server", where `what` is "an exchange". `more` names further choices that are not in the
// list.
template <class Infos>
std::size_t find_by_name(const Infos& infos, std::string_view name, std::string_view what, std::string_view more = {}) {
  const auto found =
      std::find_if(std::begin(infos), std::end(infos), [&](const auto& info) { return info.name == name; });
  if (found != std::end(infos)) return static_cast<std::size_t>(found - std::begin(infos));
  throw UsageError(
      fmt::format("'{}' is not {}; there are {}{}{}", name, what, names_of(infos), more.empty() ? "" : ", ", more));
}

}  // namespace sparsewire
