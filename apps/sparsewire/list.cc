// sparsewire list: what there is to choose from, with an example each.
#include <fmt/core.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>

#include "commands.h"
#include "sparsewire/sparsifier.h"

namespace sparsewire::cli {
namespace {

void print_table() {
  fmt::print("{:<12} {:<40} {}\n", "sparsifier", "keeps", "example");
  for (const SparsifierInfo& info : sparsifiers()) {
    fmt::print("{:<12} {:<40} {}\n", info.name, info.summary, info.example);
  }
}

std::string as_json() {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const SparsifierInfo& info : sparsifiers()) {
    rows.push_back({{"name", info.name}, {"keeps", info.summary}, {"example", info.example}});
  }
  return nlohmann::ordered_json{{"sparsifiers", rows}}.dump(2) + '\n';
}

void write_file(const std::string& path, const std::string& content) {
  std::ofstream file(path);
  file << content;
  file.close();
  if (!file) throw std::runtime_error("cannot write '" + path + "'");
}

}  // namespace

void add_list(CLI::App& program) {
  CLI::App* const command = program.add_subcommand("list", "Sparsifiers, with an example each");
  command->footer("Examples:\n  sparsewire list\n  sparsewire list --json choices.json");
  const auto json =
      std::make_shared<std::optional<std::string>>();  // filled in when the program parses, after this returns
  command->add_option("--json", *json, "Also write the list to FILE; - is standard output, without the table")
      ->type_name("FILE");
  command->callback([json] {
    if (*json == "-") {
      fmt::print("{}", as_json());
      return;
    }
    print_table();
    if (json->has_value()) write_file(**json, as_json());
  });
}

}  // namespace sparsewire::cli
