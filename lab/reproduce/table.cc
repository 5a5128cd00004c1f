#include "reproduce/table.h"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace sparsewire::reproduce {
namespace {

constexpr std::size_t kColumns = 80;

std::string printed(const char* format, int count, double number) {
  char room[64];
  const int length = std::snprintf(room, sizeof room, format, count, number);
  return {room, static_cast<std::size_t>(std::clamp<int>(length, 0, sizeof room - 1))};
}

using Rows = std::vector<std::vector<std::string>>;

bool is_first_alone(const std::vector<std::string>& row) {
  return std::all_of(row.begin() + 1, row.end(), [](const std::string& cell) { return cell.empty(); });
}

// A first cell that is alone may reach over the other columns.
std::vector<std::size_t> widths_of(const Rows& rows) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const auto& row : rows) {
    if (row.size() > 1 && is_first_alone(row)) continue;
    for (std::size_t i = 0; i < widths.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  return widths;
}

std::string text_of(const Rows& rows, std::size_t gap) {
  const std::vector<std::size_t> widths = widths_of(rows);
  std::string all;
  for (const auto& row : rows) {
    std::string line = row[0] + std::string(widths[0] - std::min(widths[0], row[0].size()), ' ');
    for (std::size_t i = 1; i < widths.size(); ++i) line += std::string(gap + widths[i] - row[i].size(), ' ') + row[i];
    all += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
  }
  return all;
}

std::size_t longest_line(const std::string& text) {
  std::size_t longest = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    longest = std::max(longest, end - at);
    at = end + 1;
  }
  return longest;
}

// Titles of several words, or with a slash, in several lines: the last one stands right above the numbers.
Rows with_stacked_titles(const Rows& rows) {
  std::vector<std::vector<std::string>> titles;
  std::size_t height = 0;
  for (const std::string& title : rows.front()) {
    std::vector<std::string> words(1);
    for (const char letter : title) {
      if (letter != ' ') words.back() += letter;
      if (letter == ' ' || letter == '/') words.emplace_back();
    }
    height = std::max(height, words.size());
    titles.push_back(std::move(words));
  }
  Rows stacked(height, std::vector<std::string>(titles.size()));
  for (std::size_t i = 0; i < titles.size(); ++i) {
    const std::size_t above = height - titles[i].size();
    for (std::size_t line = 0; line < titles[i].size(); ++line) stacked[above + line][i] = titles[i][line];
  }
  stacked.insert(stacked.end(), rows.begin() + 1, rows.end());
  return stacked;
}

// A row whose first cell leaves too little room becomes two: that cell, and the others.
Rows with_first_cells_above(const Rows& rows) {
  std::size_t others = 0;
  const std::vector<std::size_t> widths = widths_of(rows);
  for (std::size_t i = 1; i < widths.size(); ++i) others += 1 + widths[i];
  Rows all;
  for (std::vector<std::string> row : rows) {
    if (row[0].size() + others > kColumns) {
      std::vector<std::string>& above = all.emplace_back(row.size());
      above[0].swap(row[0]);
    }
    all.push_back(std::move(row));
  }
  return all;
}

}  // namespace

std::string Table::text() const {
  const std::string plain = text_of(rows_, 2);
  if (longest_line(plain) <= kColumns) return plain;
  const auto stacked = with_stacked_titles(rows_);
  const std::string narrow = text_of(stacked, 2);
  if (longest_line(narrow) <= kColumns) return narrow;
  const std::string narrower = text_of(stacked, 1);
  return longest_line(narrower) <= kColumns ? narrower : text_of(with_first_cells_above(stacked), 1);
}

std::string fixed(std::optional<double> number, int decimals) {
  return number ? printed("%.*f", decimals, *number) : "never";
}

std::string digits(double number, int count) { return printed("%.*g", count, number); }

}  // namespace sparsewire::reproduce
