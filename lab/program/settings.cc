#include "settings.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "loop/preset.h"
#include "sparsewire/errors.h"
#include "text/environment.h"

namespace sparsewire::cli {
namespace {

using train::Json;

// Where a group of options begins in the table of loop/config.cc, and its title in the help.
constexpr std::pair<std::string_view, std::string_view> kGroups[] = {
    {"problem", "What is trained, and where"}, {"workers", "Workers"}, {"sparsifier", "What is sent, and how"},
    {"optimiser", "How weights change"},       {"steps", "The run"},   {"eval_every", "Evaluations and checks"},
    {"checkpoint_dir", "Checkpoints"},         {"metrics", "Output"},  {"deadline", "Processes"}};

std::string as_text(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

std::string default_text(const train::TrainConfig& defaults, const train::Setting& setting) {
  const Json value = train::value_of(defaults, setting);
  const bool is_in_help = setting.option.help.find("default") != std::string_view::npos;
  if (is_in_help || value == "" || is_flag(setting)) return {};
  if (setting.option.name == "workers" && value == 0) return " (default 4, or as many as mpirun started)";
  return fmt::format(" (default {})", as_text(value));
}

}  // namespace

void GivenSettings::apply(train::TrainConfig& config) const {
  if (preset) train::set_from_preset(config, *preset);
  if (config_file) train::set_from_file(config, *config_file);
  for (const train::Setting& setting : train::settings()) {
    const auto found = texts.find(std::string(setting.option.name));
    if (found != texts.end()) train::set_from_text(config, setting, found->second);
  }
}

void GivenSettings::check_needs(const train::TrainConfig& config) const {
  for (const train::Setting& setting : train::settings()) {
    const auto found = texts.find(std::string(setting.option.name));
    const Json value = train::value_of(config, setting);
    if (setting.option.needs.empty() || found == texts.end() || value == 0) continue;
    const auto needed = std::find_if(train::settings().begin(), train::settings().end(),
                                     [&](const auto& other) { return other.option.name == setting.option.needs; });
    if (train::value_of(config, *needed) != "") continue;
    const std::string name = train::long_name(needed->option.name);
    throw UsageError(fmt::format("{}{} does nothing without {}: add {} {}", train::long_name(setting.option.name),
                                 is_flag(setting) ? "" : " " + found->second, name, name, needed->option.type));
  }
}

void clear_outputs(train::TrainConfig& config) {
  config.metrics.clear();
  config.report.clear();
  config.checkpoint_dir.clear();
  config.resume = false;
  config.change.clear();
  config.save_weights.clear();
  config.transport = "threads";
}

void add_settings(CLI::App& command, const train::TrainConfig& defaults, const std::vector<std::string_view>& without,
                  GivenSettings& given) {
  std::string title;
  for (const train::Setting& setting : train::settings()) {
    const std::string name(setting.option.name);
    for (const auto& [first, group] : kGroups) {
      if (name == first) title = group;
    }
    if (std::find(without.begin(), without.end(), name) != without.end()) continue;
    std::string option = train::long_name(name);
    if (name == "quiet") option = "-q," + option;
    if (name == "optimiser") option += ",--optimizer";
    const std::string help = std::string(setting.option.help) + default_text(defaults, setting);
    if (is_flag(setting)) {
      command
          .add_flag_callback(
              option, [&given, name] { given.texts[name] = "true"; }, help)
          ->group(title);
    } else {
      command
          .add_option_function<std::string>(
              option, [&given, name](const std::string& text) { given.texts[name] = text; }, help)
          ->type_name(std::string(setting.option.type))
          ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
          ->group(title);
    }
  }
}

void add_config(CLI::App& command, GivenSettings& given) {
  command
      .add_option("--config", given.config_file,
                  "Read options from a JSON file, {\"lr\": 0.1, ...}, or from a report; those on the command line "
                  "override them")
      ->type_name("FILE")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

std::string one_line(const train::TrainConfig& config) {
  std::string line;
  for (const train::Setting& setting : train::settings()) {
    const Json value = train::value_of(config, setting);
    if (value == "" || value == false) continue;
    line += fmt::format("{}{}={}", line.empty() ? "" : " ", setting.option.name, as_text(value));
  }
  return line;
}

void add_totals(const train::Totals& totals, Json& json) {
  json["bytes_up"] = totals.bytes_up;
  json["bytes_down"] = totals.bytes_down;
  json["bytes_served"] = totals.bytes_served;
  json["paper_bits_up"] = totals.paper_bits_up;
  json["paper_bits_down"] = totals.paper_bits_down;
  json["total_error"] = totals.total_error;
  json["server_error"] = totals.server_error;
  json["peak_memory_norm2"] = totals.peak_memory_norm2;
}

std::chrono::milliseconds deadline_of(const train::TrainConfig& config) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(config.deadline * 1000) + 1);
}

void check_alone(std::string_view advice) {
  const int processes = environment::processes();
  if (processes <= 1) return;
  throw UsageError(fmt::format("mpirun started {} processes, and each would train alone: {}", processes, advice));
}

}  // namespace sparsewire::cli
