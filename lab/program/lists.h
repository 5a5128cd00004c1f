// Options that are numbers or lists of numbers: 0.4,0.5,0.6.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sparsewire/spec.h"

namespace sparsewire::cli {

void add_number(CLI::App& command, const std::string& name, std::optional<double>& value, Range range,
                const std::string& help);
// Both sort the numbers and remove duplicates.
void add_numbers(CLI::App& command, const std::string& name, std::optional<std::vector<double>>& values, Range range,
                 const std::string& help);
void add_integers(CLI::App& command, const std::string& name, std::optional<std::vector<std::uint64_t>>& values,
                  std::uint64_t min, std::uint64_t max, const std::string& help);

}  // namespace sparsewire::cli
