// One line of a metrics file: a JSON object of names and numbers. Own code and not the JSON library's: a file may have
// millions of lines, Python writes NaN and Infinity, which JSON does not have, and a damaged line must cost nothing.
#pragma once

#include <functional>
#include <string_view>

namespace sparsewire::report {

enum class FieldKind {
  number,  // also NaN, Infinity and their like, as bare words or as strings
  null,    // our own metrics write it for a number that is not finite
  text,    // `raw` has the quotes
  other,   // true, false, a list or an object
};

struct Field {
  std::string_view name;  // between the quotes, with its escapes
  FieldKind kind = FieldKind::other;
  double number = 0;
  std::string_view raw;
};

// Calls `take` for each field, in order. Returns whether the whole line is such an object; if not, `take` has been
// called for the fields before the first mistake.
bool scan_line(std::string_view line, const std::function<void(const Field&)>& take);

}  // namespace sparsewire::report
