// The options of `train` and `compare`, from the table of loop/config.h.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loop/config.h"
#include "loop/totals.h"

namespace sparsewire::cli {

// Options as they were given. They are applied in this order: defaults, preset, config file, command line.
struct GivenSettings {
  std::map<std::string, std::string> texts;  // of the command line, by name
  std::optional<std::string> config_file;
  std::optional<std::string> preset;

  // Throws UsageError.
  void apply(train::TrainConfig& config) const;
  // Throws UsageError if the command line has an option that does nothing without another: config.metrics and so on.
  // The file may have it: the configuration of a report has all options.
  void check_needs(const train::TrainConfig& config) const;
};

// For commands that run several trainings: what a config file says about files of one training does not apply.
void clear_outputs(train::TrainConfig& config);

// Adds every option of the table except those in `without`; the help shows `defaults`. `given` must live as long as the
// command.
void add_settings(CLI::App& command, const train::TrainConfig& defaults, const std::vector<std::string_view>& without,
                  GivenSettings& given);

// Adds --config FILE.
void add_config(CLI::App& command, GivenSettings& given);

// "problem=mlp workers=4 ...", without options that are empty or off.
std::string one_line(const train::TrainConfig& config);

// Adds what a training counted to its report.
void add_totals(const train::Totals& totals, train::Json& json);

std::chrono::milliseconds deadline_of(const train::TrainConfig& config);

// Throws UsageError if mpirun started several processes of this program. Each would run alone and not know the others.
void check_alone(std::string_view advice);

}  // namespace sparsewire::cli
