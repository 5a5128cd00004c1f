#include "reproduce/table.h"

#include <algorithm>
#include <cstdio>

namespace sparsewire::reproduce {
namespace {

std::string printed(const char* format, int count, double number) {
  char room[64];
  const int length = std::snprintf(room, sizeof room, format, count, number);
  return {room, static_cast<std::size_t>(std::clamp<int>(length, 0, sizeof room - 1))};
}

}  // namespace

std::string Table::text() const {
  std::vector<std::size_t> widths(rows_.front().size());
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < widths.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string all;
  for (const auto& row : rows_) {
    std::string line = row[0] + std::string(widths[0] - row[0].size(), ' ');
    for (std::size_t i = 1; i < widths.size(); ++i) line += std::string(2 + widths[i] - row[i].size(), ' ') + row[i];
    all += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
  }
  return all;
}

std::string fixed(std::optional<double> number, int decimals) {
  return number ? printed("%.*f", decimals, *number) : "never";
}

std::string digits(double number, int count) { return printed("%.*g", count, number); }

}  // namespace sparsewire::reproduce
