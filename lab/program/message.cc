#include "message.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>

namespace sparsewire::cli {
namespace {

bool is_control(unsigned char c) { return c < 0x20 || c == 0x7F; }

// Also terminals' control characters U+0080 to U+009F, which are two bytes in UTF-8.
bool is_wide_control(std::string_view text, std::size_t i) {
  if (i + 1 >= text.size()) return false;
  const auto next = static_cast<unsigned char>(text[i + 1]);
  return text[i] == '\xC2' && next >= 0x80 && next <= 0x9F;
}

std::string escaped(char c) {
  switch (c) {
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      return fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (is_wide_control(text, i)) {
      out += escaped(text[i]) + escaped(text[i + 1]);
      ++i;
    } else if (is_control(static_cast<unsigned char>(text[i]))) {
      out += escaped(text[i]);
    } else {
      out += text[i];
    }
  }
  return out;
}

// Not fmt::print, which throws if standard error is closed.
void complain(std::string_view message, std::string_view advice) {
  const std::string text =
      "sparsewire: " + printable(message) + '\n' + (advice.empty() ? std::string() : printable(advice) + '\n');
  std::fputs(text.c_str(), stderr);
}

// The table of Damerau and Levenshtein, row by row; swaps need the row before the last one.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before_last(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before_last.swap(last);
    last.swap(row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool is_same = a[i - 1] == b[j - 1];
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (is_same ? 0 : 1)});
      const bool is_swap = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (is_swap) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::string nearest(std::string_view given, const std::vector<std::string>& names) {
  std::size_t least = given.size() / 4 + 2;  // of eight letters three may be wrong
  std::string best;
  for (const std::string& name : names) {
    const std::size_t distance = edit_distance(given, name);
    if (distance >= least) continue;
    least = distance;
    best = name;
  }
  return best;
}

}  // namespace sparsewire::cli
