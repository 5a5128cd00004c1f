#include "sparsewire/spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "sparsewire/errors.h"

namespace sparsewire {

bool Range::holds(double value) const noexcept {
  return (above_min ? value > min : value >= min) && (below_max ? value < max : value <= max);  // false for NaN
}

std::string Range::text() const {
  const bool open_max = below_max || std::isinf(max);
  return fmt::format("{}{}, {}{}", above_min || std::isinf(min) ? "(" : "[", min, max, open_max ? ")" : "]");
}

Spec::Spec(std::string_view spec) {
  const std::size_t colon = spec.find(':');
  name_ = spec.substr(0, colon);
  if (colon == std::string_view::npos) return;
  std::string_view rest = spec.substr(colon + 1);
  while (true) {
    const std::size_t comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos || equals == 0 || equals + 1 == item.size()) {
      fail(fmt::format("'{}' is not key=value in '{}'", item, spec));
    }
    const std::string key(item.substr(0, equals));
    if (has(key)) fail(fmt::format("{}= is given twice in '{}'", key, spec));
    given_.emplace_back(key, item.substr(equals + 1));
    if (comma == std::string_view::npos) return;
    rest = rest.substr(comma + 1);
  }
}

bool Spec::has(std::string_view key) const noexcept {
  return std::any_of(given_.begin(), given_.end(), [&](const auto& item) { return item.first == key; });
}

const std::string* Spec::read(std::string_view key) {
  read_.emplace_back(key);
  const auto it = std::find_if(given_.begin(), given_.end(), [&](const auto& item) { return item.first == key; });
  return it == given_.end() ? nullptr : &it->second;
}

std::optional<double> Spec::number(std::string_view key, const Range& range) {
  const std::string* value = read(key);
  if (value == nullptr) return std::nullopt;
  double number = 0;
  const auto [end, error] = std::from_chars(value->data(), value->data() + value->size(), number);
  if (error != std::errc() || end != value->data() + value->size()) {
    fail(fmt::format("{}={} is not a number in {}", key, *value, range.text()));
  }
  // An infinity is never allowed, even if the range has no limit.
  if (!range.holds(number) || std::isinf(number)) fail(fmt::format("{}={} is not in {}", key, *value, range.text()));
  return number;
}

std::optional<std::uint64_t> Spec::integer(std::string_view key, std::uint64_t min, std::uint64_t max) {
  const std::string* value = read(key);
  if (value == nullptr) return std::nullopt;
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(value->data(), value->data() + value->size(), number);
  if (error != std::errc() || end != value->data() + value->size() || number < min || number > max) {
    fail(fmt::format("{}={} is not a whole number in [{}, {}]", key, *value, min, max));
  }
  return number;
}

bool Spec::flag(std::string_view key, bool otherwise) {
  return otherwise ? choice(key, {"true", "false"}) == "true" : choice(key, {"false", "true"}) == "true";
}

std::optional<std::string> Spec::word(std::string_view key) {
  const std::string* value = read(key);
  return value == nullptr ? std::nullopt : std::optional(*value);
}

std::string Spec::choice(std::string_view key, const std::vector<std::string_view>& words) {
  const std::string* value = read(key);
  if (value == nullptr) return std::string(*words.begin());
  if (std::find(words.begin(), words.end(), *value) != words.end()) return *value;
  fail(fmt::format("{}={} is not one of {}", key, *value, fmt::join(words, ", ")));
}

void Spec::finish() const {
  for (const auto& [key, value] : given_) {
    if (std::find(read_.begin(), read_.end(), key) != read_.end()) continue;
    fail(read_.empty() ? fmt::format("unknown key '{}'; '{}' takes no keys", key, name_)
                       : fmt::format("unknown key '{}'; valid keys are {}", key, fmt::join(read_, ", ")));
  }
  if (!missing_.empty()) fail(missing_);
}

void Spec::fail_on_finish(const std::string& message) { missing_ = message; }

void Spec::fail(const std::string& message) const { throw UsageError(fmt::format("[{}] {}", name_, message)); }

}  // namespace sparsewire
