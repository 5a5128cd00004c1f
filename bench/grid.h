// Formats tables, for a terminal or as Markdown.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sparsewire::bench {

enum class Form : std::uint8_t { text, markdown };

// Rows of columns; the first row is the header.
using Cells = std::vector<std::vector<std::string>>;

std::string grid(const Cells& cells, Form form);

// Whether a target was met, as text for a table: "held" or "MISSED".
std::string held(bool is_held);

}  // namespace sparsewire::bench
