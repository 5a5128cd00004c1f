// The tables of a study for people: in a terminal of 80 columns, and as Markdown (summary.md).
#include <algorithm>

#include "study/summary_page.h"
#include "study/tables.h"

namespace sparsewire::study {
namespace {

constexpr std::size_t kColumns = 80;

// Words in lines of at most 80 columns; the first begins with `first`, the others with as many spaces. A word that is
// longer is cut.
std::string wrapped(const std::string& text, const std::string& first = "") {
  std::string all;
  std::string line = first;
  const std::string indent(first.size(), ' ');
  const auto end_line = [&] {
    all += line + '\n';
    line = indent;
  };
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    std::string word = text.substr(at, end - at);
    at = end + 1;
    if (width_of(line) > indent.size() && width_of(line) + 1 + width_of(word) > kColumns) end_line();
    if (width_of(line) > indent.size()) line += ' ';
    for (; width_of(line) + width_of(word) > kColumns; end_line()) {
      std::size_t fits = 0;
      while (width_of(line) + width_of(word.substr(0, fits + 1)) <= kColumns) ++fits;
      line += word.substr(0, fits);
      word.erase(0, fits);
    }
    line += word;
  }
  return all + line + '\n';
}

std::string sheet_text(const Sheet& sheet) {
  std::vector<std::size_t> widths;
  std::size_t others = 0;
  for (std::size_t i = 0; i < sheet.titles.size(); ++i) {
    std::size_t widest = width_of(sheet.titles[i]);
    for (const auto& row : sheet.rows) widest = std::max(widest, width_of(row[i]));
    widths.push_back(widest);
    if (i > 0) others += 2 + widest;
  }
  // A method that leaves no room for its numbers has a line of its own above them.
  widths[0] = std::min(widths[0], others < kColumns ? kColumns - others : 0);
  const auto line = [&](const std::vector<std::string>& cells) {
    const bool fits = width_of(cells[0]) <= widths[0];
    std::string text = fits ? cells[0] + std::string(widths[0] - width_of(cells[0]), ' ') : std::string(widths[0], ' ');
    for (std::size_t i = 1; i < cells.size(); ++i) {
      text += std::string(2 + widths[i] - width_of(cells[i]), ' ') + cells[i];
    }
    return (fits ? "" : wrapped(cells[0])) + text + '\n';
  };
  std::string text = wrapped(sheet.heading) + '\n' + line(sheet.titles);
  for (const auto& row : sheet.rows) text += line(row);
  return text;
}

// A bar would end the cell.
std::string markdown_cell(std::string text) {
  for (std::size_t at = 0; (at = text.find_first_of("|\\*_<", at)) != std::string::npos; at += 2) text.insert(at, "\\");
  for (std::size_t at = 0; (at = text.find("+-", at)) != std::string::npos;) text.replace(at, 2, "±");
  return text;
}

std::string sheet_markdown(const Sheet& sheet) {
  const auto line = [](const std::vector<std::string>& cells) {
    std::string text = "|";
    for (const std::string& cell : cells) text += " " + markdown_cell(cell) + " |";
    return text + '\n';
  };
  std::string text = markdown_cell(sheet.heading) + "\n\n" + line(sheet.titles) + "|---|";
  for (std::size_t i = 1; i < sheet.titles.size(); ++i) text += "---:|";
  text += '\n';
  for (const auto& row : sheet.rows) text += line(row);
  return text;
}

}  // namespace

std::string summary_text(const Results& results) {
  const Page page = page_of(results);
  std::string text = wrapped(page.heading);
  for (const Sheet& sheet : page.sheets) text += '\n' + sheet_text(sheet);
  text += '\n';
  for (const std::string& note : page.notes) text += wrapped(note, "- ");
  return text;
}

std::string summary_markdown(const Results& results) {
  const Page page = page_of(results);
  std::string text = "# " + markdown_cell(page.heading) + '\n';
  for (const Sheet& sheet : page.sheets) text += '\n' + sheet_markdown(sheet);
  text += '\n';
  for (const std::string& note : page.notes) text += "- " + markdown_cell(note) + '\n';
  return text;
}

}  // namespace sparsewire::study
