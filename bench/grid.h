// Tables of text, for a terminal or as Markdown.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sparsewire::bench {

enum class Form : std::uint8_t { text, markdown };

// Rows of columns; the first row is the head.
using Cells = std::vector<std::vector<std::string>>;

std::string grid(const Cells& cells, Form form);

// The outcome on a bar.
std::string held(bool is_held);

}  // namespace sparsewire::bench
