// Files that must not outlive the program: temporary files and locks. The handler of SIGINT removes them.
#pragma once

#include <string>

namespace sparsewire::files {

// Adds a name to those that remove_unfinished() removes, and takes it off again. THREADS: any.
void remember_unfinished(const std::string& name);
void forget_unfinished(const std::string& name);

// Removes all files that are remembered. May be called from a signal handler.
void remove_unfinished() noexcept;

}  // namespace sparsewire::files
