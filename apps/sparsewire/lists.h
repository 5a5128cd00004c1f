// Options that are numbers or lists of them: 0.4,0.5,0.6.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sparsewire::cli {

// Open at `min` if above_min, at `max` if below_max.
struct NumberRange {
  double min;
  double max;
  bool above_min = false;
  bool below_max = false;
};

void add_number(CLI::App& command, const std::string& name, std::optional<double>& value, NumberRange range,
                const std::string& help);
// Both sort what is given and drop what is there twice.
void add_numbers(CLI::App& command, const std::string& name, std::optional<std::vector<double>>& values,
                 NumberRange range, const std::string& help);
void add_integers(CLI::App& command, const std::string& name, std::optional<std::vector<std::uint64_t>>& values,
                  std::uint64_t min, std::uint64_t max, const std::string& help);

}  // namespace sparsewire::cli
