#include "study/record.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <span>
#include <stdexcept>
#include <system_error>

#include "files/folder.h"
#include "files/input.h"
#include "files/replace.h"
#include "sparsewire/errors.h"

namespace sparsewire::study {
namespace {

constexpr const char* kConfigFile = "/config.json";
constexpr const char* kResultFile = "/result.json";
constexpr const char* kMetricsFile = "/metrics.jsonl";

// FNV-1a, 64 bits.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xCBF29CE484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return hash;
}

void write_json(const std::string& path, const Json& json) {
  files::Replacement file(path);
  const std::string text = json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

// The training writes its metrics without waiting for the disk.
void sync_file(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool is_synced = file >= 0 && ::fsync(file) == 0;
  const int error = errno;
  if (file >= 0) ::close(file);
  if (!is_synced && error != EINVAL) {
    throw std::runtime_error(fmt::format("cannot write '{}': {}", path, std::generic_category().message(error)));
  }
}

double number_at(const Json& json, const std::string& key) {
  const auto found = json.find(key);
  return found == json.end() || found->is_null() ? kNotMeasured : found->get<double>();
}

std::optional<double> optional_at(const Json& json, const char* key) {
  return json.contains(key) ? std::optional(json.at(key).get<double>()) : std::nullopt;
}

// With the names of metrics.jsonl.
Point point_of(const Json& json, const std::string& metric) {
  Point point;
  point.step = json.at("step").get<std::uint64_t>();
  point.train_loss = number_at(json, "train_loss");
  point.val_loss = number_at(json, "validation_loss");
  point.test_loss = number_at(json, "test_loss");
  if (!metric.empty()) point.metric = number_at(json, metric);
  point.bytes = json.value("total_bytes_up", std::uint64_t{0}) + json.value("total_bytes_down", std::uint64_t{0});
  point.paper_bits = json.value("paper_bits_up", std::uint64_t{0}) + json.value("paper_bits_down", std::uint64_t{0});
  return point;
}

Json start_json(const Point& point, const std::string& metric) {
  Json json{{"step", point.step}, {"train_loss", point.train_loss}};
  if (!std::isnan(point.val_loss)) json["validation_loss"] = point.val_loss;
  if (!std::isnan(point.test_loss)) json["test_loss"] = point.test_loss;
  if (!metric.empty()) json[metric] = point.metric;
  return json;
}

Json totals_json(const train::Totals& totals) {
  return {{"bytes_up", totals.bytes_up},
          {"bytes_down", totals.bytes_down},
          {"bytes_served", totals.bytes_served},
          {"paper_bits_up", totals.paper_bits_up},
          {"paper_bits_down", totals.paper_bits_down},
          {"entries_up", totals.entries_up},
          {"entries_down", totals.entries_down},
          {"total_error", totals.total_error},
          {"server_error", totals.server_error},
          {"peak_memory_norm2", totals.peak_memory_norm2},
          {"loss", totals.loss}};
}

train::Totals totals_of(const Json& json) {
  train::Totals totals;
  totals.bytes_up = json.at("bytes_up").get<std::uint64_t>();
  totals.bytes_down = json.at("bytes_down").get<std::uint64_t>();
  totals.bytes_served = json.at("bytes_served").get<std::uint64_t>();
  totals.paper_bits_up = json.at("paper_bits_up").get<std::uint64_t>();
  totals.paper_bits_down = json.at("paper_bits_down").get<std::uint64_t>();
  totals.entries_up = json.at("entries_up").get<std::uint64_t>();
  totals.entries_down = json.at("entries_down").get<std::uint64_t>();
  totals.total_error = number_at(json, "total_error");
  totals.server_error = number_at(json, "server_error");
  totals.peak_memory_norm2 = number_at(json, "peak_memory_norm2");
  totals.loss = number_at(json, "loss");
  return totals;
}

Json result_json(const Record& record, const std::string& metric) {
  const Cell& cell = record.cell;
  Json json{{"id", record.id},
            {"phase", record.phase},
            {"method", cell.method},
            {"ratio", cell.ratio},
            {"lr", cell.lr},
            {"own", cell.own},
            {"k", cell.k},
            {"grown", cell.grown},
            {"seed", record.seed},
            {"status", record.status},
            {"diverged_at", record.diverged_at ? Json(*record.diverged_at) : Json(nullptr)},
            {"steps", record.steps},
            {"initial_train_loss", record.initial_train_loss},
            {"final_train_loss", record.final_train_loss},
            {"val_loss", record.val_loss},
            {"test_loss", record.test_loss},
            {"metric", record.metric},
            {"val_metric", record.val_metric},
            {"metric_name", metric},
            {"totals", totals_json(record.totals)},
            {"weights_crc32c", fmt::format("{:08x}", record.weights_crc32c)},
            {"seconds", record.seconds},
            {"start", start_json(record.curve.at(0), metric)}};
  if (record.lambda) json["lambda"] = *record.lambda;
  if (record.downlink_lambda) json["downlink_lambda"] = *record.downlink_lambda;
  return json;
}

std::uint32_t parse_hex(const std::string& text) {
  std::uint32_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number, 16);
  if (error != std::errc() || stop != end) throw UsageError(fmt::format("'{}' is not a checksum", text));
  return number;
}

Record record_of(const Json& json, std::string& metric) {
  Record record;
  record.id = json.at("id").get<std::string>();
  record.phase = json.at("phase").get<std::string>();
  record.cell.method = json.at("method").get<std::string>();
  record.cell.ratio = json.at("ratio").get<std::string>();
  record.cell.lr = json.at("lr").get<double>();
  record.cell.own = json.at("own").get<std::map<std::string, std::string>>();
  record.cell.k = json.at("k").get<std::uint64_t>();
  record.cell.grown = json.at("grown").get<std::uint64_t>();
  record.seed = json.at("seed").get<std::uint64_t>();
  record.status = json.at("status").get<std::string>();
  if (!json.at("diverged_at").is_null()) record.diverged_at = json.at("diverged_at").get<std::uint64_t>();
  record.steps = json.at("steps").get<std::uint64_t>();
  record.initial_train_loss = number_at(json, "initial_train_loss");
  record.final_train_loss = number_at(json, "final_train_loss");
  record.val_loss = number_at(json, "val_loss");
  record.test_loss = number_at(json, "test_loss");
  record.metric = number_at(json, "metric");
  record.val_metric = number_at(json, "val_metric");
  record.totals = totals_of(json.at("totals"));
  record.peak_memory_norm2 = record.totals.peak_memory_norm2;
  record.weights_crc32c = parse_hex(json.at("weights_crc32c").get<std::string>());
  record.seconds = json.at("seconds").get<double>();
  record.lambda = optional_at(json, "lambda");
  record.downlink_lambda = optional_at(json, "downlink_lambda");
  metric = json.at("metric_name").get<std::string>();
  record.curve.push_back(point_of(json.at("start"), metric));
  return record;
}

void add_curve(std::string_view lines, const std::string& metric, Record& record) {
  for (std::size_t at = 0; at < lines.size();) {
    const std::size_t end = lines.find('\n', at);
    if (end == std::string_view::npos) throw UsageError("metrics.jsonl ends in mid-line");
    const Json line = train::parse_json(lines.substr(at, end - at));
    // Lines of --measure-every alone, and those of --metrics-every-step, have no totals.
    if (line.contains("total_bytes_up")) record.curve.push_back(point_of(line, metric));
    at = end + 1;
  }
}

}  // namespace

double measure(const Point& point, std::string_view name) {
  if (name == kTestLoss) return point.test_loss;
  if (name == kValLoss) return point.val_loss;
  if (name == kTrainLoss) return point.train_loss;
  return point.metric;
}

double Record::measure(std::string_view name) const {
  if (name == kTestLoss) return test_loss;
  if (name == kValLoss) return val_loss;
  if (name == kTrainLoss) return final_train_loss;
  if (name == kValMetric) return val_metric;
  return metric;
}

std::string run_id(const train::TrainConfig& config, std::string_view what, const Plan& plan) {
  std::string all = fmt::format("{}\ndata={}\ntest_data={}\n", what, plan.data, plan.test_data);
  if (!plan.init_weights.empty()) all += fmt::format("init_weights={}\n", plan.init_weights);
  for (const train::Setting& setting : train::settings()) {
    if (!is_of_result(setting.option.name)) continue;
    all += fmt::format("{}={}\n", setting.option.name, train::shown(train::value_of(config, setting)));
  }
  return fmt::format("{:016x}", hash_of(all));
}

void write_record(const std::string& folder, const Record& record, const std::string& metric) {
  write_json(folder + kConfigFile, train::to_json(record.config));
  write_json(folder + kResultFile, result_json(record, metric));
  sync_file(folder + kMetricsFile);
  files::sync_folder(folder);
}

Record read_record(const std::string& folder) {
  try {
    for (const char* const name : {kResultFile, kConfigFile, kMetricsFile}) {
      // To open a pipe would wait for ever.
      if (!std::filesystem::is_regular_file(folder + name)) throw UsageError(fmt::format("'{}' is no file", name + 1));
    }
    std::string metric;
    Record record = record_of(train::parse_json(files::read_file(folder + kResultFile).text()), metric);
    train::set_from_file(record.config, folder + kConfigFile);
    add_curve(files::read_file(folder + kMetricsFile).text(), metric, record);
    const bool is_training = record.phase == kTune || record.phase == kJudge;
    if (is_training && !record.diverged_at && record.curve.back().step != record.steps) {
      throw UsageError("metrics.jsonl ends too early");
    }
    return record;
  } catch (const Json::exception& error) {
    throw UsageError(fmt::format("'{}' is damaged ({}): remove it to run it again", folder, error.what()));
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("'{}' is damaged ({}): remove it to run it again", folder, error.what()));
  }
}

}  // namespace sparsewire::study
