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
#include "train/optimiser.h"
#include "train/problem.h"
#include "train/schedule.h"

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
  all.text = fmt::format("{:<12} {:<55} {}\n", title, summary, "example");
  for (const auto& info : infos) {
    all.text += fmt::format("{:<12} {:<55} {}\n", info.name, info.summary, info.example);
    all.rows.push_back({{"name", info.name}, {summary, info.summary}, {"example", info.example}});
  }
  return all;
}

}  // namespace

void add_list(CLI::App& program) {
  CLI::App* const command = program.add_subcommand("list", "What there is to choose from, with an example each");
  command->footer("Examples:\n  sparsewire list\n  sparsewire list --json choices.json");
  const auto json_path = std::make_shared<std::optional<std::string>>();
  add_json(*command, *json_path);
  command->callback([json_path] {
    const Choices sparse = choices("sparsifier", "keeps", sparsifiers());
    const Choices codec = choices("codec", "how", codecs());
    const Choices value = choices("values", "what", value_formats());
    const Choices exchange = choices("exchange", "moves", exchange_choices());
    const Choices problem = choices("problem", "is", train::problems());
    const Choices optimiser = choices("optimiser", "does", train::optimisers());
    const Choices schedule = choices("schedule", "gives", train::schedules());
    const Json json{{"sparsifiers", sparse.rows}, {"codecs", codec.rows},     {"value_formats", value.rows},
                    {"exchanges", exchange.rows}, {"problems", problem.rows}, {"optimisers", optimiser.rows},
                    {"schedules", schedule.rows}};
    std::string text;
    for (const Choices* all : {&sparse, &codec, &value, &exchange, &problem, &optimiser, &schedule}) {
      text += (text.empty() ? "" : "\n") + all->text;
    }
    Report report(*json_path, json, text);
    report.print();
    report.commit();
  });
}

}  // namespace sparsewire::cli
