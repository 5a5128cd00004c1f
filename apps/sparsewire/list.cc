// sparsewire list: what there is to choose from, with an example each.
#include <fmt/core.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "commands.h"
#include "options.h"
#include "sparsewire/codec.h"
#include "sparsewire/sparsifier.h"
#include "sparsewire/worker.h"

namespace sparsewire::cli {
namespace {

// Everything of one kind, for people and as JSON. The names of the columns are the keys.
struct Choices {
  std::string text;
  Json rows = Json::array();
};

template <class Infos>
Choices choices(std::string_view title, const char* summary, const Infos& infos) {
  Choices all;
  all.text = fmt::format("{:<12} {:<40} {}\n", title, summary, "example");
  for (const auto& info : infos) {
    all.text += fmt::format("{:<12} {:<40} {}\n", info.name, info.summary, info.example);
    all.rows.push_back({{"name", info.name}, {summary, info.summary}, {"example", info.example}});
  }
  return all;
}

}  // namespace

void add_list(CLI::App& program) {
  CLI::App* const command = program.add_subcommand("list", "Sparsifiers and codecs, with an example each");
  command->footer("Examples:\n  sparsewire list\n  sparsewire list --json choices.json");
  const auto json_path = std::make_shared<std::optional<std::string>>();
  add_json(*command, *json_path);
  command->callback([json_path] {
    const Choices sparse = choices("sparsifier", "keeps", sparsifiers());
    const Choices codec = choices("codec", "how", codecs());
    const Choices value = choices("values", "what", value_formats());
    const Choices exchange = choices("exchange", "moves", exchange_choices());
    const Json json{{"sparsifiers", sparse.rows},
                    {"codecs", codec.rows},
                    {"value_formats", value.rows},
                    {"exchanges", exchange.rows}};
    Report report(*json_path, json, sparse.text + '\n' + codec.text + '\n' + value.text + '\n' + exchange.text);
    report.print();
    report.commit();
  });
}

}  // namespace sparsewire::cli
