// Spec strings: `name:key=value,key=value`, flat. One way to write every choice, on the command line, in C++ and in
// Python.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sparsewire {

// What a number may be; printed as "(0, 1]" in errors.
struct Range {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool above_min = false;  // min itself is not allowed
  bool below_max = false;

  bool holds(double value) const noexcept;
  std::string text() const;
};

inline constexpr Range kRatioRange{.min = 0, .max = 1, .above_min = true};

// A parsed spec. Ask for each key once, then call finish(): what nobody asked for is an unknown key.
//
// All functions throw UsageError with the name, the offending value and the allowed range.
class Spec {
 public:
  explicit Spec(std::string_view text);

  const std::string& name() const noexcept { return name_; }

  // Was the key given? (Does not count as asking for it.)
  bool has(std::string_view key) const noexcept;

  std::optional<double> number(std::string_view key, const Range& range);
  std::optional<std::uint64_t> integer(std::string_view key, std::uint64_t min, std::uint64_t max);
  bool flag(std::string_view key, bool otherwise);
  // As it is written.
  std::optional<std::string> word(std::string_view key);
  // One of `words`, or the first of them.
  std::string choice(std::string_view key, const std::vector<std::string_view>& words);

  // A complaint about what is missing: thrown by finish(), after unknown keys, of which a missing one often is the
  // reason.
  void fail_on_finish(const std::string& message);

  // Refuses keys that were not asked for, and names those that were.
  void finish() const;

  // "[topk] " + message, thrown.
  [[noreturn]] void fail(const std::string& message) const;

 private:
  const std::string* take(std::string_view key);

  std::string name_;
  std::vector<std::pair<std::string, std::string>> given_;
  std::vector<std::string> asked_;
  std::string missing_;
};

}  // namespace sparsewire
