// sparsewire: the program. Exit codes: 0 done, 1 failed, 2 wrong usage.
#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <iostream>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "commands.h"
#include "files/unfinished.h"
#include "help.h"
#include "message.h"
#include "sparsewire/errors.h"
#include "sparsewire/support/simd.h"
#include "text/environment.h"

namespace {

using sparsewire::cli::complain;
using sparsewire::cli::kFailed;
using sparsewire::cli::kWrongUsage;
using sparsewire::cli::nearest;

// Ctrl-C leaves no temporary files behind, and ends the program as it would have without this.
void tidy_up(int signal) {
  sparsewire::files::remove_unfinished();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

std::string advice(const std::string& command) {
  return fmt::format("Try 'sparsewire {}--help'.", command.empty() ? "" : command + " ");
}

// "--json" for "--json=x".
std::string name_of(const std::string& argument) { return argument.substr(0, argument.find('=')); }

std::vector<std::string> long_options(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// What is wrong with arguments that no option took; empty if all were taken. CLI11 lists them all, options and values,
// from last to first; or says that something is missing which was only mistyped.
std::string unknown_argument(const CLI::App& command) {
  const std::vector<std::string> left = command.remaining();
  if (left.empty()) return {};
  const auto option =
      std::find_if(left.begin(), left.end(), [](const std::string& one) { return one.starts_with('-'); });
  if (option == left.end()) return fmt::format("unexpected argument '{}'", left.front());
  const std::string given = name_of(*option);
  const std::string meant = given.starts_with("--") ? nearest(given, long_options(command)) : "";
  return fmt::format("unknown option {}{}", given, meant.empty() ? "" : fmt::format("; did you mean {}?", meant));
}

// CLI11 would only say that a sub-command is required.
void refuse_first(const CLI::App& program, const std::string& first) {
  std::vector<std::string> names = long_options(program);
  for (const CLI::App* command : program.get_subcommands({})) names.push_back(command->get_name());
  const std::string meant = nearest(first, names);
  complain(fmt::format("there is no {} '{}'{}", first.starts_with('-') ? "option" : "command", first,
                       meant.empty() ? "" : fmt::format("; did you mean '{}'?", meant)),
           advice(""));
}

// CLI11 says "--steps: 1 required N missing".
std::string in_plain_words(const CLI::ParseError& error) {
  constexpr std::string_view kRequired = ": 1 required ";
  constexpr std::string_view kMissing = " missing";
  const std::string text = error.what();
  const std::size_t at = text.find(kRequired);
  if (at == std::string::npos || !text.ends_with(kMissing)) return text;
  const std::string kind = text.substr(at + kRequired.size());
  return fmt::format("{} needs a value: {}", text.substr(0, at), kind.substr(0, kind.size() - kMissing.size()));
}

int run(int argc, char** argv) {
  // These throw if an environment variable is wrong, also where nothing will depend on it.
  sparsewire::check_simd();
  sparsewire::environment::uses_graphs();
  sparsewire::environment::sifts_on_host();
  CLI::App program(
      "Data-parallel training that sends 0.1 % to 1 % of every gradient.\n\n"
      "  sparsewire compare              every method on a small problem, half a minute\n"
      "  sparsewire train --steps 200    one training, on 4 threads",
      "sparsewire");
  program.formatter(std::make_shared<sparsewire::cli::WrappedHelp>());  // before the commands, which inherit it
  program.set_version_flag("--version", SPARSEWIRE_VERSION);
  program.require_subcommand(1);
  for (auto* const add : {sparsewire::cli::add_compare, sparsewire::cli::add_compress, sparsewire::cli::add_data,
                          sparsewire::cli::add_decompress, sparsewire::cli::add_inspect, sparsewire::cli::add_list,
                          sparsewire::cli::add_pilot, sparsewire::cli::add_report, sparsewire::cli::add_reproduce,
                          sparsewire::cli::add_study, sparsewire::cli::add_train}) {
    add(program);
  }
  if (argc == 1) {
    complain("no command was given", advice(""));
    return kWrongUsage;
  }
  const std::string first = argv[1];
  const auto commands = program.get_subcommands([](const CLI::App*) { return true; });
  const bool is_known =
      first == "-h" || first == "--help" || first == "--version" ||
      std::any_of(commands.begin(), commands.end(), [&](auto* command) { return command->get_name() == first; });
  if (!is_known) {
    refuse_first(program, first);
    return kWrongUsage;
  }
  try {
    program.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help and --version
    program.exit(asked);
  } catch (const CLI::ParseError& error) {
    const auto chosen = program.get_subcommands();
    const std::string unknown = chosen.empty() ? "" : unknown_argument(*chosen.front());
    complain(unknown.empty() ? in_plain_words(error) : unknown,
             advice(chosen.empty() ? "" : chosen.front()->get_name()));
    return kWrongUsage;
  }
  std::cout.flush();
  if (std::fflush(stdout) != 0 || !std::cout) throw std::runtime_error("cannot write standard output");
  return 0;
}

// A descriptor that is closed would be given to the next file that is opened, and what is printed would go there. A
// folder takes its place: it can be neither read nor written, so that the error is the usual one.
void occupy_standard_descriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) == -1) ::open("/", O_RDONLY | O_DIRECTORY);
  }
}

}  // namespace

int main(int argc, char** argv) {
  occupy_standard_descriptors();
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    if (std::signal(signal, tidy_up) == SIG_IGN) std::signal(signal, SIG_IGN);  // nohup
  }
  try {
    return run(argc, argv);
  } catch (const sparsewire::UsageError& error) {
    complain(error.what());
    return kWrongUsage;
  } catch (const sparsewire::cli::SilentFailure& failure) {
    return failure.exit_code();
  } catch (const std::bad_alloc&) {
    complain("out of memory");
  } catch (const std::exception& error) {
    complain(error.what());
  } catch (...) {  // of a library of --load
    complain("an error that says nothing: an exception that is no std::exception");
  }
  return kFailed;
}
