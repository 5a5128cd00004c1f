// Sparsifiers from shared libraries (sparsewire/plugin.h), for a program that is not theirs.
#pragma once

#include <string>
#include <vector>

namespace sparsewire::train {

// Loads a library and registers what it has, until the program ends. Loading it again does nothing. Throws UsageError
// if it is none, was built for another version, or has a sparsifier of a name that is taken. THREADS: one caller,
// before trainings.
void load_plugin(const std::string& path);

// CRC-32C of the contents of each library that was loaded, in that order: which code makes the results.
const std::vector<std::string>& loaded_plugins() noexcept;

}  // namespace sparsewire::train
