// Spec strings: `name:key=value,key=value`, without nesting. Sparsifiers, codecs, feedbacks and exchanges are all
// chosen by one, on the command line, in C++ and in Python.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sparsewire {

// The allowed range of a number; printed as "(0, 1]" in errors.
struct Range {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool above_min = false;  // min itself is not allowed
  bool below_max = false;  // max itself is not allowed

  bool holds(double value) const noexcept;
  std::string text() const;
};

inline constexpr Range kRatioRange{.min = 0, .max = 1, .above_min = true};

// A parsed spec. Read each key once, then call finish(), which reports keys that were never read as unknown.
//
// All functions throw UsageError with the name, the offending value and the allowed range.
class Spec {
 public:
  explicit Spec(std::string_view text);

  const std::string& name() const noexcept { return name_; }

  // Whether the key was given. (Does not count as reading it.)
  bool has(std::string_view key) const noexcept;

  std::optional<double> number(std::string_view key, const Range& range);
  std::optional<std::uint64_t> integer(std::string_view key, std::uint64_t min, std::uint64_t max);
  bool flag(std::string_view key, bool otherwise);
  // The value of the key as written, or nothing if it was not given.
  std::optional<std::string> word(std::string_view key);
  // The value of the key, which must be one of `words`; the first of them if the key was not given.
  std::string choice(std::string_view key, const std::vector<std::string_view>& words);

  // Makes finish() throw this message, unless it finds an unknown key: a misspelt key is often the reason why another
  // one is missing.
  void fail_on_finish(const std::string& message);

  // Throws if a key was given but never read; the message lists the valid keys.
  void finish() const;

  // Throws UsageError("[topk] " + message).
  [[noreturn]] void fail(const std::string& message) const;

 private:
  const std::string* read(std::string_view key);

  std::string name_;
  std::vector<std::pair<std::string, std::string>> given_;
  std::vector<std::string> read_;
  std::string missing_;
};

}  // namespace sparsewire
