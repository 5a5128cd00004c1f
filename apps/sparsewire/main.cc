// sparsewire: the program. Exit codes: 0 done, 1 failed, 2 wrong usage.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>

#include "commands.h"
#include "sparsewire/errors.h"

namespace {

constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;

int run(int argc, char** argv) {
  CLI::App program("Data-parallel training that sends 0.1 % to 1 % of every gradient.", "sparsewire");
  program.set_version_flag("--version", SPARSEWIRE_VERSION);
  program.require_subcommand(1);
  program.failure_message([](const CLI::App* app, const CLI::Error& error) {
    return fmt::format("{}: {}\nTry '{} --help'.\n", app->get_name(), error.what(), app->get_name());
  });
  sparsewire::cli::add_list(program);
  // CLI11 would only say that a sub-command is required.
  const auto commands = program.get_subcommands([](const CLI::App*) { return true; });
  const auto is_named = [&](const CLI::App* command) { return command->get_name() == argv[1]; };
  if (argc > 1 && argv[1][0] != '-' && std::none_of(commands.begin(), commands.end(), is_named)) {
    fmt::print(stderr, "sparsewire: there is no command '{}'\nTry 'sparsewire --help'.\n", argv[1]);
    return kWrongUsage;
  }
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return program.exit(error) == 0 ? 0 : kWrongUsage;  // --help and --version arrive here too
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const sparsewire::UsageError& error) {
    fmt::print(stderr, "sparsewire: {}\n", error.what());
    return kWrongUsage;
  } catch (const std::exception& error) {
    fmt::print(stderr, "sparsewire: {}\n", error.what());
    return kFailed;
  }
}
