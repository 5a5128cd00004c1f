// The form of --help: descriptions are wrapped, so that no line is longer than 80 columns.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace sparsewire::cli {

class WrappedHelp : public CLI::Formatter {
 public:
  std::string make_option_desc(const CLI::Option* option) const override;
  std::string make_subcommand(const CLI::App* command) const override;

 private:
  std::string wrapped(const std::string& description) const;
};

}  // namespace sparsewire::cli
