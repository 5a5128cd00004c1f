// Messages on standard error: errors, warnings and notes. All of them go through here, so each is one line, whatever
// names and values are in it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace sparsewire::cli {

// The text with control characters as \n, \t or \x1b: a file name may have any of them, and a terminal would obey them.
std::string printable(std::string_view text);

// Prints "sparsewire: <message>", and the advice, if there is one, on a second line.
void complain(std::string_view message, std::string_view advice = {});

// How many letters must be inserted, removed or changed, or neighbours swapped, to get from one to the other.
std::size_t edit_distance(std::string_view a, std::string_view b);

// The one of `names` that is most like `given`, if it is so much alike that `given` may be a typing error; otherwise
// empty.
std::string nearest(std::string_view given, const std::vector<std::string>& names);

}  // namespace sparsewire::cli
