// What a summary shows, before it is known where: rows of texts with their rounding, and notes. A terminal, summary.md
// and summary.tex show the same.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "study/tables.h"

namespace sparsewire::study {

struct Sheet {
  std::string name;  // of the table, for references to it: "measures"
  std::string heading;
  std::vector<std::string> titles;
  std::vector<std::vector<std::string>> rows;
};

struct Page {
  std::string heading;
  std::vector<Sheet> sheets;
  std::vector<std::string> notes;
};

// In a cell: there is no such number.
inline constexpr const char* kNothing = "-";

Page page_of(const Results& results);

// In columns of a terminal: UTF-8 has bytes that continue a character.
std::size_t width_of(const std::string& text);

}  // namespace sparsewire::study
