// Which build of this program runs: runs of changed code must not be taken for runs of this one.
#pragma once

#include <string>

namespace sparsewire::study {

// The identifiers that the linker gave to the program and to the libraries of sparsewire that are loaded, which differ
// where their code does, and the checksums of plugins. Empty if there are none.
std::string build_id();

}  // namespace sparsewire::study
