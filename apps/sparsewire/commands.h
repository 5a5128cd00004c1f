// The sub-commands, one file each. A command adds itself to the program; CLI11 calls it when it is chosen.
#pragma once

#include <CLI/CLI.hpp>

namespace sparsewire::cli {

void add_compress(CLI::App& program);
void add_decompress(CLI::App& program);
void add_inspect(CLI::App& program);
void add_list(CLI::App& program);
void add_reproduce(CLI::App& program);

}  // namespace sparsewire::cli
