#include "terminal.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <string_view>

namespace sparsewire::cli {
std::size_t columns() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : kColumns;
}

std::string bar(std::uint64_t done, std::uint64_t all) {
  const std::uint64_t width = columns() < 100 ? 12 : 24;
  const auto filled = static_cast<std::size_t>(all == 0 || done > all ? 0 : done * width / all);
  return '[' + std::string(filled, '#') + std::string(width - filled, '.') + ']';
}

std::string in_units(double bytes) {
  constexpr std::string_view kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  std::size_t unit = 0;
  while (bytes >= 1000 && unit + 1 < std::size(kUnits)) {
    bytes /= 1000;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", bytes, unit == 0 || bytes >= 100 ? 0 : 1, kUnits[unit]);
}

std::string duration(double seconds) {
  constexpr double kMinute = 60;
  constexpr double kHour = 3600;
  constexpr double kDay = 86400;
  const auto whole = [](double number) { return static_cast<std::uint64_t>(number); };
  if (!(seconds < 1e9)) return "years";
  if (seconds < kMinute) return fmt::format("{} s", whole(std::ceil(seconds)));
  if (seconds < kHour) return fmt::format("{} min", whole(seconds / kMinute));
  if (seconds < kDay)
    return fmt::format("{} h {} min", whole(seconds / kHour), whole(std::fmod(seconds, kHour) / kMinute));
  return fmt::format("{} d {} h", whole(seconds / kDay), whole(std::fmod(seconds, kDay) / kHour));
}

std::string wrapped(const std::string& text) {
  std::string all;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string rest = text.substr(at, end - at);
    const std::size_t first = std::min(rest.find_first_not_of(' '), rest.size());
    const std::string indent(first + (rest.compare(first, 2, "- ") == 0 ? 2 : 0), ' ');
    while (rest.size() > kColumns) {
      const std::size_t space = rest.rfind(' ', kColumns);
      if (space == std::string::npos || space <= indent.size()) break;  // a word that is longer than a line
      all += rest.substr(0, space) + '\n';
      rest = indent + rest.substr(space + 1);
    }
    all += rest + (end < text.size() ? "\n" : "");
    at = end + 1;
  }
  return all;
}

std::string shortened(const std::string& text, std::size_t most) {
  return text.size() <= most ? text : text.substr(0, most - 3) + "...";
}

StatusLine::StatusLine(bool is_shown) : is_shown_(is_shown) {}

StatusLine::~StatusLine() { end(); }

void StatusLine::show(const std::string& text) {
  if (!is_shown_) return;
  text_ = text.substr(0, columns() - 1);
  std::fprintf(stderr, "\r\x1b[K%s", text_.c_str());
  std::fflush(stderr);
}

void StatusLine::print(const std::string& lines) {
  if (!text_.empty()) std::fputs("\r\x1b[K", stderr);
  std::fputs(lines.c_str(), stderr);
  if (!text_.empty()) std::fputs(text_.c_str(), stderr);
  std::fflush(stderr);
}

void StatusLine::end() {
  if (!text_.empty()) std::fputs("\n", stderr);
  text_.clear();
}

}  // namespace sparsewire::cli
