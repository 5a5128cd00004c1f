#include "grid.h"

#include <fmt/format.h>

#include <algorithm>

namespace sparsewire::bench {
namespace {

// The first column is the label, and columns without a header are verdicts; all others are numbers.
bool is_number(const Cells& cells, std::size_t column) { return column > 0 && !cells.front()[column].empty(); }

std::string aligned(const Cells& cells, std::size_t row, std::size_t column) {
  std::size_t width = 3;  // of the shortest separator in Markdown
  for (const auto& other : cells) width = std::max(width, other[column].size());
  const std::string& cell = cells[row][column];
  return is_number(cells, column) ? fmt::format("{:>{}}", cell, width) : fmt::format("{:<{}}", cell, width);
}

std::string without_trailing_spaces(const std::string& line) { return line.substr(0, line.find_last_not_of(' ') + 1); }

}  // namespace

std::string held(bool is_held) { return is_held ? "held" : "MISSED"; }

// Markdown is aligned too, so that it is readable as text.
std::string grid(const Cells& cells, Form form) {
  if (cells.size() < 2) return "";  // nothing was measured
  const bool markdown = form == Form::markdown;
  const std::string bar = markdown ? "|" : " ";
  std::string lines;
  for (std::size_t row = 0; row < cells.size(); ++row) {
    std::string line = bar;
    std::string rule = bar;
    for (std::size_t column = 0; column < cells[row].size(); ++column) {
      const std::string cell = aligned(cells, row, column);
      line += " " + cell + " " + bar;
      rule += " " + std::string(cell.size() - 1, '-') + (markdown && is_number(cells, column) ? ": " : "- ") + bar;
    }
    lines += without_trailing_spaces(line) + "\n" + (row == 0 ? without_trailing_spaces(rule) + "\n" : "");
  }
  return lines + "\n";
}

}  // namespace sparsewire::bench
