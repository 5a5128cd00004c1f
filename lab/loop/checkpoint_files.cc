#include "loop/checkpoint_files.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <exception>
#include <filesystem>
#include <functional>
#include <span>
#include <string_view>
#include <utility>

#include "files/input.h"
#include "files/replace.h"
#include "sparsewire/errors.h"
#include "sparsewire/state.h"
#include "sparsewire/support/crc32c.h"
#include "text/json.h"

namespace sparsewire::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFolderPrefix = "step-";
constexpr std::size_t kDigits = 8;    // at least, so that names sort in the order of the steps
constexpr std::uint64_t kFormat = 1;  // version of the manifest
constexpr const char* kModelName = "model.state";

std::string rank_name(std::uint64_t rank) { return fmt::format("rank-{}.state", rank); }

std::string checksum(std::span<const std::byte> bytes) { return fmt::format("{:08x}", crc32c(bytes)); }
std::string checksum(const std::string& bytes) { return checksum(std::as_bytes(std::span(bytes))); }

void write_file(const std::string& path, std::span<const std::byte> bytes) {
  files::Replacement file(path);
  file.write(bytes);
  file.commit();
}

// Without the checksum at its end: a CRC over data and their CRC is the same for all data.
std::string state_checksum(std::span<const std::byte> bytes) {
  return checksum(bytes.first(bytes.size() - std::min<std::size_t>(bytes.size(), sizeof(std::uint32_t))));
}

Json write_state(const std::string& path, const std::string& name, State&& state) {
  const std::vector<std::byte> bytes = std::move(state).bytes();
  write_file(path + "/" + name, bytes);
  return {{name, {{"bytes", bytes.size()}, {"crc32c", state_checksum(bytes)}}}};
}

void serialize_model(State& state, RankState& mine) {
  state.value("train_step", mine.step);
  state.array("weights", mine.weights);
}

void serialize_rank(State& state, RankState& mine) {
  state.value("train_step", mine.step);
  state.array("optimiser", mine.optimiser);
  state.array("worker", mine.worker);
  state.value("bytes_up", mine.totals.bytes_up);
  state.value("bytes_down", mine.totals.bytes_down);
  state.value("bytes_served", mine.totals.bytes_served);
  state.value("total_error", mine.totals.total_error);
  state.optional_value("server_error", mine.totals.server_error);
  state.value("loss", mine.totals.loss);
  // Since 0.4.0. Before it the bytes were those of frames, without trailers.
  state.optional_value("paper_bits_up", mine.totals.paper_bits_up);
  state.optional_value("paper_bits_down", mine.totals.paper_bits_down);
  state.optional_value("peak_memory_norm2", mine.totals.peak_memory_norm2);  // since 0.5.0
  state.optional_value("entries_up", mine.totals.entries_up);                // since 0.7.0
  state.optional_value("entries_down", mine.totals.entries_down);
  // Since 0.8.0, with local steps.
  if (state.saving() ? !mine.outer.empty() : state.has("outer")) state.array("outer", mine.outer);
  // Since 0.6.0, for problems that have a state.
  if (state.saving() ? !mine.problem.empty() : state.has("problem")) state.array("problem", mine.problem);
}

// A pipe is refused: nobody might ever write to it. A file that is there and cannot be read is not damaged, so that is
// a std::runtime_error.
files::Bytes read_regular(const std::string& path) {
  if (!fs::is_regular_file(path)) throw UsageError(fmt::format("'{}' is not there, or not a regular file", path));
  try {
    return files::read_file(path);
  } catch (const UsageError& error) {
    throw std::runtime_error(error.what());
  }
}

// Throws Json::exception, UsageError.
std::uint64_t unsigned_at(const Json& json, const char* key) {
  const Json& number = json.at(key);
  if (!number.is_number_unsigned())
    throw UsageError(fmt::format("its {} is {}, not a whole number", key, shown(number)));
  return number.get<std::uint64_t>();
}

// A state file that agrees with the manifest. Throws UsageError.
files::Bytes read_checked(const Manifest& manifest, const std::string& name) {
  const std::string path = manifest.path + "/" + name;
  const auto expected = manifest.files.find(name);
  if (expected == manifest.files.end())
    throw UsageError(fmt::format("the manifest in '{}' lacks {}", manifest.path, name));
  files::Bytes bytes = read_regular(path);
  if (bytes.size != unsigned_at(*expected, "bytes")) {
    throw UsageError(fmt::format("'{}' has {} bytes, not {}", path, bytes.size, shown(expected->at("bytes"))));
  }
  if (state_checksum(bytes.span()) != expected->at("crc32c").get<std::string>()) {
    throw UsageError(fmt::format("the checksum of '{}' does not match: it was changed", path));
  }
  try {
    State whole(bytes.span());  // checks the four bytes at its end as well
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("'{}': {}", path, error.what()));
  }
  return bytes;
}

Manifest parse_manifest(const std::string& path, Json json) {
  const std::string expected = json.at("crc32c").get<std::string>();
  json.erase("crc32c");
  if (checksum(shown(json)) != expected) throw UsageError("its checksum does not match: it was changed");
  const std::uint64_t format = unsigned_at(json, "format");
  if (format != kFormat) throw UsageError(fmt::format("its format is {}, not {}", format, kFormat));
  Manifest manifest{.path = path,
                    .step = unsigned_at(json, "step"),
                    .workers = unsigned_at(json, "workers"),
                    .config = {},
                    .data = json.at("data").get<std::string>(),
                    .test_data = json.value("test_data", std::string()),  // since 0.4.0
                    .files = json.at("files"),
                    .changes = json.value("changes", Json::array()),  // since 0.4.0
                    .missing_metrics = json.value("missing_metrics", Json::array())};
  // One file for each rank and one for the model: a number of workers that agrees can be believed.
  if (manifest.workers == 0 || manifest.workers != manifest.files.size() - 1) {
    throw UsageError(fmt::format("it has {} files of {} workers", manifest.files.size(), manifest.workers));
  }
  for (const Json* const list : {&manifest.changes, &manifest.missing_metrics}) {
    if (!list->is_array()) throw UsageError("its changes or its missing metrics are not a list");
    for (const Json& one : *list) unsigned_at(one, "step");
  }
  for (const Json& file : manifest.files) {
    unsigned_at(file, "bytes");
    file.at("crc32c").get<std::string>();
  }
  set_from_object(manifest.config, json.at("config"));
  return manifest;
}

// Throws UsageError unless every file is complete, and of that step.
Manifest read_complete(const std::string& path, std::uint64_t step) {
  Manifest manifest = read_manifest(path);
  if (manifest.step != step) throw UsageError(fmt::format("'{}/{}' is of step {}", path, kManifestName, manifest.step));
  read_checked(manifest, kModelName);
  for (std::uint64_t rank = 0; rank < manifest.workers; ++rank) read_checked(manifest, rank_name(rank));
  return manifest;
}

template <class Serialize>
void read_state(const Manifest& manifest, const std::string& name, RankState& into, Serialize serialize) {
  const files::Bytes bytes = read_checked(manifest, name);
  State state(bytes.span());
  serialize(state, into);
  state.finish();
  if (into.step == manifest.step) return;
  throw UsageError(fmt::format("'{}/{}' is of step {}, not {}", manifest.path, name, into.step, manifest.step));
}

}  // namespace

std::string checkpoint_path(const std::string& folder, std::uint64_t step) {
  std::string digits = std::to_string(step);
  if (digits.size() < kDigits) digits.insert(0, kDigits - digits.size(), '0');
  return fmt::format("{}/{}{}", folder, kFolderPrefix, digits);
}

bool is_checkpoint_file(std::string_view name) {
  const auto is_between = [&](std::string_view begin, std::string_view end) {
    return name.size() >= begin.size() + end.size() && name.starts_with(begin) && name.ends_with(end);
  };
  return name == kManifestName || name == kModelName || is_between("rank-", ".state") ||
         is_between(".sparsewire-", ".tmp");  // files/replace.h
}

bool has_manifest(const std::string& path) { return fs::exists(path + "/" + kManifestName); }

std::vector<std::uint64_t> checkpoint_steps(const std::string& folder) {
  std::vector<std::uint64_t> steps;
  if (!fs::exists(folder)) return steps;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kFolderPrefix)) continue;
    std::uint64_t step = 0;
    std::from_chars(name.data() + kFolderPrefix.size(), name.data() + name.size(), step);
    if (checkpoint_path(folder, step) == folder + "/" + name) steps.push_back(step);  // nothing follows the digits
  }
  std::sort(steps.begin(), steps.end(), std::greater<>());
  return steps;
}

Json write_rank(const std::string& path, int rank, RankState& mine) {
  State state;
  serialize_rank(state, mine);
  Json files = write_state(path, rank_name(static_cast<std::uint64_t>(rank)), std::move(state));
  if (rank != 0) return files;
  State model;
  serialize_model(model, mine);
  files.update(write_state(path, kModelName, std::move(model)));
  return files;
}

void check_all_here(const Manifest& manifest) {
  for (const auto& [name, about] : manifest.files.items()) {
    std::error_code error;
    if (fs::file_size(manifest.path + "/" + name, error) == about.at("bytes").get<std::uint64_t>() && !error) continue;
    throw std::runtime_error(
        fmt::format("'{}' lacks {} or a part of it: all ranks must write to the same folder, also those on other "
                    "machines",
                    manifest.path, name));
  }
}

void write_manifest(const Manifest& manifest) {
  Json json{{"format", kFormat},           {"step", manifest.step},
            {"workers", manifest.workers}, {"config", to_json(manifest.config)},
            {"data", manifest.data},       {"test_data", manifest.test_data},
            {"changes", manifest.changes}, {"missing_metrics", manifest.missing_metrics},
            {"files", manifest.files}};
  json["crc32c"] = checksum(shown(json));  // of everything before it, in one line
  // A path need not be UTF-8, and JSON must be.
  const std::string bytes = json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
  write_file(manifest.path + "/" + kManifestName, std::as_bytes(std::span(bytes)));
}

Manifest read_manifest(const std::string& path) {
  const std::string name = path + "/" + kManifestName;
  const files::Bytes bytes = read_regular(name);
  try {
    return parse_manifest(path, parse_json(bytes.text()));
  } catch (const Json::exception&) {  // it is JSON, but lacks something
    throw UsageError(fmt::format("'{}' is incomplete or was changed", name));
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("'{}': {}", name, error.what()));
  }
}

bool has_checkpoints(const std::string& folder) {
  const std::vector<std::uint64_t> steps = checkpoint_steps(folder);
  return std::any_of(steps.begin(), steps.end(),
                     [&](std::uint64_t step) { return has_manifest(checkpoint_path(folder, step)); });
}

std::optional<Manifest> find_checkpoint(const std::string& folder, const std::function<void(const std::string&)>& log) {
  std::string damage;
  for (const std::uint64_t step : checkpoint_steps(folder)) {
    const std::string path = checkpoint_path(folder, step);
    if (!has_manifest(path)) continue;
    try {
      Manifest manifest = read_complete(path, step);
      if (!damage.empty()) log(fmt::format("damaged: {}; going back to step {}", damage, step));
      return manifest;
    } catch (const UsageError& error) {
      if (damage.empty()) damage = error.what();
    }
  }
  if (damage.empty()) return std::nullopt;
  throw UsageError(fmt::format("all checkpoints in '{}' are damaged; of the newest: {}", folder, damage));
}

std::vector<RankState> read_checkpoint(const Manifest& manifest) {
  std::vector<RankState> ranks(manifest.workers);
  for (std::uint64_t rank = 0; rank < manifest.workers; ++rank) {
    read_state(manifest, rank_name(rank), ranks[rank], serialize_rank);
  }
  read_state(manifest, kModelName, ranks[0], serialize_model);
  return ranks;
}

}  // namespace sparsewire::train
