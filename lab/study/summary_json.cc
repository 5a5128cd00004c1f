// summary.json.
#include <fmt/core.h>

#include <string>

#include "sparsewire/support/portable_math.h"
#include "study/judge.h"
#include "study/tables.h"
#include "text/number.h"

namespace sparsewire::study {
namespace {

// To be raised when a field changes its meaning.
constexpr int kSummarySchema = 1;

Json json_of(const std::optional<double>& number) { return number ? Json(*number) : Json(nullptr); }
Json json_of(const std::optional<std::uint64_t>& number) { return number ? Json(*number) : Json(nullptr); }
Json json_of(const std::optional<Interval>& interval) {
  return interval ? Json::array({interval->low, interval->high}) : Json(nullptr);
}
Json json_of(const std::vector<std::optional<double>>& numbers) {
  Json list = Json::array();
  for (const std::optional<double>& one : numbers) list.push_back(json_of(one));
  return list;
}
// Bytes, bits and steps: without ".0".
Json counts_json(const std::vector<std::optional<double>>& counts) {
  Json list = Json::array();
  for (const std::optional<double>& one : counts) {
    list.push_back(one ? Json(static_cast<std::uint64_t>(*one)) : Json(nullptr));
  }
  return list;
}
bool is_count(std::string_view measure) { return measure.starts_with("bytes") || measure == kPaperBits; }

Json ratio_json(const std::string& ratio) { return json_of(parse_number<double>(ratio)); }

Json summary_of(const Summary& numbers, bool of_counts) {
  return {{"mean", json_of(numbers.mean)},
          {"sd", json_of(numbers.sd)},
          {"ci95", json_of(numbers.ci95)},
          {"median", json_of(numbers.median)},
          {"by_seed", of_counts ? counts_json(numbers.by_seed) : json_of(numbers.by_seed)}};
}

Json comparison_json(const Plan& plan, const std::optional<Comparison>& comparison, bool has_holm) {
  if (!comparison) return nullptr;
  Json json{{"baseline", plan.methods[comparison->baseline.method_index].spec()},
            {"ratio", ratio_json(comparison->baseline.ratio)},
            {"diff", json_of(comparison->diff)},
            {"ci95", json_of(comparison->ci95)},
            {"p", json_of(comparison->p)}};
  if (has_holm) json["p_holm"] = json_of(comparison->p_holm);
  json["wins"] = comparison->wins;
  json["losses"] = comparison->losses;
  return json;
}

Json target_json(const std::optional<ToTarget>& result) {
  if (!result) return nullptr;
  const auto ratio = [](double log) { return portable_exp(log); };
  Json log_ratio = nullptr;
  if (result->log_ratio) {
    const std::optional<Interval>& interval = result->log_ratio_ci95;
    log_ratio = {{"mean", *result->log_ratio},
                 {"ci95", json_of(interval)},
                 {"ratio", ratio(*result->log_ratio)},
                 {"ratio_ci95", interval ? Json::array({ratio(interval->low), ratio(interval->high)}) : Json(nullptr)}};
  }
  return {{"reached", result->reached},
          {"median_bytes", json_of(result->median_bytes)},
          {"median_steps", json_of(result->median_steps)},
          {"censored_at", json_of(result->censored_at)},
          {"bytes_by_seed", counts_json(result->bytes_by_seed)},
          {"steps_by_seed", counts_json(result->steps_by_seed)},
          {"log_ratio", log_ratio}};
}

Json edge_json(const Choice& choice) {
  Json json = Json::object();
  if (choice.at_low_edge || choice.at_high_edge) {
    json["lr"] = !choice.at_low_edge ? "high" : !choice.at_high_edge ? "low" : "only";
  }
  for (const auto& [name, edge] : choice.own_at_edge) json[name] = edge;
  return json;
}

Json own_json(const Cell& cell) {
  Json json = Json::object();
  for (const auto& [name, value] : cell.own) json[name] = value;
  return json;
}

Json chosen_json(const Plan& plan, const Choice& choice) {
  if (!choice.cell) return nullptr;
  const Cell& cell = plan.cells[*choice.cell];
  return {{"lr", cell.lr}, {"own", own_json(cell)}, {"k", cell.k}};
}

Json method_json(const Plan& plan, const Judged& judged) {
  const Group& group = judged.choice.group;
  Json measures = Json::object();
  for (const Measure& one : judged.measures) measures[one.name] = summary_of(one.numbers, is_count(one.name));
  Json json{{"spec", plan.methods[group.method_index].spec()},
            {"name", plan.methods[group.method_index].name()},
            {"ratio", ratio_json(group.ratio)},
            {"chosen", chosen_json(plan, judged.choice)},
            {"at_edge", edge_json(judged.choice)},
            {"cells_tried", judged.choice.cells_tried},
            {"n", judged.n},
            {"diverged", judged.diverged},
            {"measures", measures},
            {"vs_baseline", comparison_json(plan, judged.vs_baseline, /*has_holm=*/true)},
            {"to_target", target_json(judged.to_target)}};
  json["sent_of_asked"] = json_of(judged.sent_of_asked);
  json["equal_bytes"] = nullptr;
  if (judged.equal_bytes) {
    json["equal_bytes"] = summary_of(judged.equal_bytes->numbers, /*of_counts=*/false);
    json["equal_bytes"]["vs_baseline"] = comparison_json(plan, judged.equal_bytes->vs_baseline, /*has_holm=*/false);
  }
  json["pilot"] = nullptr;
  if (judged.pilot) {
    json["pilot"] = {{"steps", judged.pilot->steps},
                     {"bytes", judged.pilot->bytes},
                     {"lambda", json_of(judged.pilot->lambda)},
                     {"downlink_lambda", json_of(judged.pilot->downlink_lambda)}};
  }
  return json;
}

Json grid_json(const Results& results) {
  const Plan& plan = results.plan;
  Json grid = Json::array();
  for (const TunedCell& tuned : tuned_cells(plan, results.records)) {
    const Cell& cell = plan.cells[tuned.cell];
    bool is_chosen = false;
    for (const Choice& choice : results.choices) is_chosen = is_chosen || choice.cell == tuned.cell;
    grid.push_back({{"spec", cell.method},
                    {"ratio", ratio_json(cell.ratio)},
                    {"lr", cell.lr},
                    {"own", own_json(cell)},
                    {"k", cell.k},
                    {"grown", cell.grown},
                    {"n", tuned.runs},
                    {"diverged", tuned.diverged},
                    {"mean", json_of(tuned.mean)},
                    {"by_seed", json_of(tuned.by_seed)},
                    {"sent_of_asked", json_of(tuned.sent_of_asked)},
                    {"chosen", is_chosen}});
  }
  return grid;
}

}  // namespace

Json summary_json(const Results& results) {
  const Plan& plan = results.plan;
  const Judgement judgement = judge(plan, results.choices, results.records);
  Json target = nullptr;
  if (judgement.target) {
    target = {{"measure", plan.target_by},
              {"value", *judgement.target},
              {"set_by", plan.target ? "given" : "the baseline on the tuning seeds"}};
  }
  Json methods = Json::array();
  for (const Judged& one : judgement.groups) methods.push_back(method_json(plan, one));
  return {{"schema", kSummarySchema},
          {"plan", to_json(plan)},
          {"environment", environment()},
          {"intervals", about_intervals(plan)},
          {"notes", plan.notes},
          {"target", target},
          {"equal_bytes", json_of(judgement.equal_bytes)},
          {"grid", grid_json(results)},
          {"methods", methods}};
}

}  // namespace sparsewire::study
