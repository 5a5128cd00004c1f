// sparsewire list: all sparsifiers, codecs, exchanges, problems, splits, optimisers and schedules, with an example of
// each.
#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "commands.h"
#include "data/split.h"
#include "loop/optimiser.h"
#include "loop/schedule.h"
#include "message.h"
#include "options.h"
#include "problems/problem.h"
#include "sparsewire/codec.h"
#include "sparsewire/sparsifier.h"
#include "sparsewire/worker.h"
#include "terminal.h"

namespace sparsewire::cli {
namespace {

// Everything of one kind, as text and as JSON. The titles of the columns are the keys.
struct Choices {
  std::string text;
  Json rows = Json::array();
};

// Notes: what the tables are too narrow for.
constexpr const char* kSparsifierNotes =
    "  ratio: the share of the entries that are sent. threshold:ratio=X chooses as\n"
    "  topk:ratio=X for 1/X steps to measure lambda; from then on lambda is constant,\n"
    "  and the share may drift.\n"
    "  regtopk differs from topk only in entries that were sent in the last step. If\n"
    "  few are sent, it mostly chooses the same entries as topk.\n";
constexpr const char* kExchangeNotes =
    "  dense moves whole vectors: with a sparsifier such as topk only the chosen\n"
    "  entries are not zero, but no bytes are saved.\n";
constexpr const char* kProblemNotes =
    "  logreg: density=X is the share of entries that are not zero (synthetic data);\n"
    "  split=true is --split round_robin. With L = sigma_max(A)^2/(4*samples), the\n"
    "  smoothness of the loss, l2 is L/10000 unless given, and 1/(L + l2) is a good\n"
    "  learning rate. With more than two labels it is softmax regression.\n";

// An example that does not fit 80 columns stands in a line of its own.
std::string row(std::string_view name, std::string_view summary, std::string_view example, std::size_t width) {
  const std::string text = fmt::format("{:<12} {:<{}}  {}\n", name, summary, width, example);
  return text.size() <= kColumns + 1 ? text : fmt::format("{:<12} {}\n{:<12} {}\n", name, summary, "", example);
}

template <class Infos>
Choices choices(std::string_view title, const char* summary, const Infos& infos, const char* notes = "") {
  Choices all;
  std::size_t width = std::string_view(summary).size();
  for (const auto& info : infos) width = std::max(width, info.summary.size());
  all.text = row(title, summary, "example", width);
  for (const auto& info : infos) {
    all.text += row(info.name, printable(info.summary), printable(info.example), width);
    all.rows.push_back({{"name", info.name}, {summary, info.summary}, {"example", info.example}});
  }
  all.text += notes;
  return all;
}

}  // namespace

void add_list(CLI::App& program) {
  CLI::App* const command =
      program.add_subcommand("list", "List sparsifiers, codecs, exchanges, problems, splits, optimisers and schedules");
  command->footer("Examples:\n  sparsewire list\n  sparsewire list --json choices.json");
  add_load(*command);
  const auto json_path = std::make_shared<std::optional<std::string>>();
  add_json(*command, *json_path);
  command->callback([json_path] {
    const Choices sparse = choices("sparsifier", "keeps", sparsifiers(), kSparsifierNotes);
    const Choices codec = choices("codec", "how", codecs());
    const Choices value = choices("values", "what", value_formats());
    const Choices exchange = choices("exchange", "moves", exchange_choices(), kExchangeNotes);
    const Choices problem = choices("problem", "is", train::problems(), kProblemNotes);
    const Choices split = choices("split", "gives a worker", train::splits());
    const Choices optimiser = choices("optimiser", "does", train::optimisers());
    const Choices schedule = choices("schedule", "gives", train::schedules());
    const Json json{{"sparsifiers", sparse.rows}, {"codecs", codec.rows},     {"value_formats", value.rows},
                    {"exchanges", exchange.rows}, {"problems", problem.rows}, {"optimisers", optimiser.rows},
                    {"schedules", schedule.rows}, {"splits", split.rows}};
    std::string text;
    for (const Choices* all : {&sparse, &codec, &value, &exchange, &problem, &split, &optimiser, &schedule}) {
      text += (text.empty() ? "" : "\n") + all->text;
    }
    Report report(*json_path, json, text);
    report.print();
    report.commit();
  });
}

}  // namespace sparsewire::cli
