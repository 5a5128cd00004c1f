// runs.csv and timings.csv.
#include "study/tables.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "study/judge.h"
#include "study/order.h"

namespace sparsewire::study {
namespace {

using Fields = std::vector<std::string>;

// As RFC 4180 wants it.
std::string line_of(const Fields& fields) {
  std::string line;
  for (const std::string& field : fields) {
    if (!line.empty() || &field != &fields.front()) line += ',';
    if (field.find_first_of(",\"\r\n") == std::string::npos) {
      line += field;
      continue;
    }
    line += '"';
    for (const char letter : field) line += letter == '"' ? std::string(2, '"') : std::string(1, letter);
    line += '"';
  }
  return line + '\n';
}

// The shortest text that is read as the same number; empty if there is none.
std::string field_of(double number) { return std::isfinite(number) ? fmt::format("{}", number) : ""; }
std::string field_of(std::uint64_t number) { return fmt::format("{}", number); }
template <class Number>
std::string field_of(const std::optional<Number>& number) {
  return number ? field_of(*number) : "";
}

// "mu=4 r=2"
std::string own_parameters(const Cell& cell) {
  std::string text;
  for (const auto& [name, value] : cell.own) text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, value);
  return text;
}

// Those that decide what a run does, and are not columns of their own.
std::vector<const train::Setting*> columns_of_settings() {
  std::vector<const train::Setting*> columns;
  for (const train::Setting& setting : train::settings()) {
    const std::string_view name = setting.option.name;
    if (is_of_result(name) && name != "seed" && name != "steps") columns.push_back(&setting);
  }
  return columns;
}

std::string field_of(const train::TrainConfig& config, const train::Setting& setting) {
  const Json value = train::value_of(config, setting);
  if (value.is_string()) return value.get<std::string>();
  return value.is_number_float() ? field_of(value.get<double>()) : train::shown(value);
}

}  // namespace

std::string runs_csv(const Results& results) {
  const std::vector<const train::Setting*> settings = columns_of_settings();
  Fields titles{"id", "phase", "method", "ratio", "own", "seed"};
  for (const train::Setting* setting : settings) titles.emplace_back(setting->option.name);
  for (const char* const title : {"k",
                                  "status",
                                  "diverged_at",
                                  "steps",
                                  "initial_train_loss",
                                  "train_loss",
                                  "val_loss",
                                  "test_loss",
                                  "metric",
                                  "val_metric",
                                  "bytes_up",
                                  "bytes_down",
                                  "bytes_served",
                                  "paper_bits_up",
                                  "paper_bits_down",
                                  "reached",
                                  "bytes_to_target",
                                  "steps_to_target",
                                  "censored_at",
                                  "worker_error",
                                  "server_error",
                                  "peak_memory_norm2",
                                  "weights_crc32c"}) {
    titles.emplace_back(title);
  }
  std::string text = line_of(titles);

  const std::optional<double> target = target_of(results.plan, results.choices, results.records);
  for (const Record* run : in_plan_order(results.plan, results.records)) {
    const Cell& cell = run->cell;
    Fields fields{run->id, run->phase, cell.method, cell.ratio, own_parameters(cell), field_of(run->seed)};
    for (const train::Setting* setting : settings) fields.push_back(field_of(run->config, *setting));
    const train::Totals& totals = run->totals;
    for (const std::string& field :
         {field_of(cell.k), run->status, field_of(run->diverged_at), field_of(run->steps),
          field_of(run->initial_train_loss), field_of(run->final_train_loss), field_of(run->val_loss),
          field_of(run->test_loss), field_of(run->metric), field_of(run->val_metric), field_of(totals.bytes_up),
          field_of(totals.bytes_down), field_of(totals.bytes_served), field_of(totals.paper_bits_up),
          field_of(totals.paper_bits_down)}) {
      fields.push_back(field);
    }
    if (target && (run->phase == kTune || run->phase == kJudge)) {
      const std::optional<std::size_t> at = reached_at(*run, results.plan, *target);
      fields.emplace_back(at ? "true" : "false");
      fields.push_back(at ? field_of(run->curve[*at].bytes) : "");
      fields.push_back(at ? field_of(run->curve[*at].step) : "");
      fields.push_back(at ? "" : field_of(run->bytes()));
    } else {
      fields.insert(fields.end(), 4, "");
    }
    for (const std::string& field : {field_of(totals.total_error - totals.server_error), field_of(totals.server_error),
                                     field_of(run->peak_memory_norm2), fmt::format("{:08x}", run->weights_crc32c)}) {
      fields.push_back(field);
    }
    text += line_of(fields);
  }
  return text;
}

std::string timings_csv(const Results& results) {
  std::string text = line_of({"id", "phase", "method", "ratio", "own", "lr", "seed", "steps", "seconds"});
  for (const Record* run : in_plan_order(results.plan, results.records)) {
    text += line_of({run->id, run->phase, run->cell.method, run->cell.ratio, own_parameters(run->cell),
                     field_of(run->cell.lr), field_of(run->seed), field_of(run->steps), field_of(run->seconds)});
  }
  return text;
}

}  // namespace sparsewire::study
