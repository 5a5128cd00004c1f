// sparsewire: the program. Exit codes: 0 done, 1 failed, 2 wrong usage.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <iostream>
#include <new>
#include <stdexcept>
#include <string_view>

#include "commands.h"
#include "files/replace.h"
#include "sparsewire/errors.h"

namespace {

using sparsewire::cli::kFailed;
using sparsewire::cli::kWrongUsage;

// Ctrl-C leaves nothing half-written behind, and ends the program as it would have without this.
void tidy_up(int signal) {
  sparsewire::files::remove_unfinished();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

// Not fmt::print, which throws if standard error is closed.
int complain(const char* what, int exit_code) {
  std::fprintf(stderr, "sparsewire: %s\n", what);
  return exit_code;
}

int run(int argc, char** argv) {
  CLI::App program("Data-parallel training that sends 0.1 % to 1 % of every gradient.", "sparsewire");
  program.set_version_flag("--version", SPARSEWIRE_VERSION);
  program.require_subcommand(1);
  program.failure_message([](const CLI::App* app, const CLI::Error& error) {
    const auto chosen = app->get_subcommands();
    return fmt::format("sparsewire: {}\nTry 'sparsewire {}--help'.\n", error.what(),
                       chosen.empty() ? "" : chosen.front()->get_name() + " ");
  });
  for (auto* const add : {sparsewire::cli::add_compare, sparsewire::cli::add_compress, sparsewire::cli::add_decompress,
                          sparsewire::cli::add_inspect, sparsewire::cli::add_list, sparsewire::cli::add_reproduce,
                          sparsewire::cli::add_train}) {
    add(program);
  }
  // CLI11 would only say that a sub-command is required.
  const std::string_view first = argc > 1 ? argv[1] : "--help";
  const auto commands = program.get_subcommands([](const CLI::App*) { return true; });
  const bool known =
      first == "-h" || first == "--help" || first == "--version" ||
      std::any_of(commands.begin(), commands.end(), [&](auto* command) { return command->get_name() == first; });
  if (!known) {
    return complain(fmt::format("there is no {} '{}'\nTry 'sparsewire --help'.",
                                first.starts_with('-') ? "option" : "command", first)
                        .c_str(),
                    kWrongUsage);
  }
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (program.exit(error) != 0) return kWrongUsage;  // --help and --version arrive here too
  }
  std::cout.flush();
  if (std::fflush(stdout) != 0 || !std::cout) throw std::runtime_error("cannot write standard output");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    if (std::signal(signal, tidy_up) == SIG_IGN) std::signal(signal, SIG_IGN);  // nohup
  }
  try {
    return run(argc, argv);
  } catch (const sparsewire::UsageError& error) {
    return complain(error.what(), kWrongUsage);
  } catch (const sparsewire::cli::SilentFailure& failure) {
    return failure.exit_code();
  } catch (const std::bad_alloc&) {
    return complain("out of memory", kFailed);
  } catch (const std::exception& error) {
    return complain(error.what(), kFailed);
  }
}
