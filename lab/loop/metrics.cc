#include "loop/metrics.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <system_error>

#include "files/input.h"
#include "files/lock.h"
#include "files/replace.h"
#include "sparsewire/errors.h"
#include "text/json.h"

namespace sparsewire::train {

Json step_json(const StepReport& report) {
  const StepStats& stats = report.stats;
  Json json{{"step", report.step},
            {"loss", report.loss},
            {"lr", report.lr},
            {"seconds", report.seconds},
            {"entries_sent", stats.entries_sent},
            {"entries_total", stats.entries_total},
            {"density", stats.density},
            {"dense_bytes", stats.dense_bytes},
            {"bytes_up", stats.bytes_up},
            {"bytes_down", stats.bytes_down},
            {"bytes_served", stats.bytes_served},
            {"sent_norm2", stats.sent_norm2},
            {"memory_norm2", stats.memory_norm2},
            {"server_memory_norm2", stats.server_memory_norm2},
            {"total_error", stats.total_error},
            {"server_error", stats.server_error},
            {"flags", stats.flags},
            {"went_dense", stats.went_dense},
            {"ns_gradient", report.ns_gradient},
            {"ns_sift", stats.ns_sift},
            {"ns_encode", stats.ns_encode},
            {"ns_exchange", stats.ns_exchange},
            {"ns_decode", stats.ns_decode},
            {"ns_merge", stats.ns_merge},
            {"ns_apply", report.ns_apply}};
  if (report.compression) {
    json["xi"] = report.compression->xi;
    json["gamma"] = report.compression->gamma;
    json["owed_norm2"] = report.compression->owed_norm2;
  }
  if (report.evaluation) {
    for (const Measurement& one : report.evaluation->numbers) json[one.name] = one.value;
  }
  if (report.totals) {
    json["steps"] = report.steps;
    json["total_bytes_up"] = report.totals->bytes_up;
    json["total_bytes_down"] = report.totals->bytes_down;
    json["total_bytes_served"] = report.totals->bytes_served;
    json["paper_bits_up"] = report.totals->paper_bits_up;
    json["paper_bits_down"] = report.totals->paper_bits_down;
  }
  return json;
}

namespace {

constexpr std::string_view kLineBegin = "{\"step\":";

// The step of the first checkpoint that comes after this line of metrics: that of its own step, or of the next one if
// it says that options changed after its step. Nothing for any other line.
std::optional<std::uint64_t> kept_from(std::string_view text) {
  try {
    const Json line = parse_json(text);
    if (!line.is_object()) return std::nullopt;
    const auto step = line.find("step");
    if (step == line.end() || !step->is_number_unsigned()) return std::nullopt;
    return step->get<std::uint64_t>() + (line.contains("changed") ? 1 : 0);
  } catch (const UsageError&) {
    return std::nullopt;
  }
}

// REQUIRES: `lines` are whole, and at least one.
Json last_line(std::string_view lines) {
  lines.remove_suffix(1);  // the end of the line
  return Json::parse(lines.substr(lines.rfind('\n') + 1), nullptr, /*allow_exceptions=*/false);
}

// `seconds` of the last of these lines that has it. Lines of versions before 0.6 have none.
double last_seconds(std::string_view lines) {
  while (!lines.empty()) {
    const Json line = last_line(lines);
    if (line.is_object() && line.contains("seconds") && line.at("seconds").is_number()) {
      return line.at("seconds").get<double>();
    }
    if (line.is_object() && !line.contains("changed")) return 0;
    lines.remove_suffix(1);
    lines = lines.substr(0, lines.rfind('\n') + 1);
  }
  return 0;
}

}  // namespace

// A line that was cut short may be the only one.
bool is_metrics_file(const std::string& path) {
  constexpr std::uint64_t kLongestLine = 1 << 16;
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return false;
  const files::Bytes bytes = files::Input(path).read(kLongestLine);
  const std::string_view first = bytes.text().substr(0, bytes.text().find('\n'));
  return bytes.size == 0 || kept_from(first) || (first.size() == bytes.size && first.starts_with(kLineBegin));
}

std::size_t bytes_until(std::string_view lines, std::uint64_t keep_until) {
  std::size_t kept = 0;
  for (std::size_t end = 0; (end = lines.find('\n', kept)) != std::string_view::npos; kept = end + 1) {
    const std::optional<std::uint64_t> from = kept_from(lines.substr(kept, end - kept));
    if (!from || *from > keep_until) break;
  }
  return kept;
}

MetricsFile::MetricsFile(std::string path, std::uint64_t keep_until) : path_(std::move(path)) {
  if (files::is_standard_output(path_)) {  // not opened again: the result, which follows, would be written over them
    file_ = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);
    if (file_ < 0) fail(errno);
    return;
  }
  // Without O_NONBLOCK, opening a pipe that nobody reads would wait for ever.
  file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
  if (file_ < 0) fail(errno);
  ::fcntl(file_, F_SETFL, O_APPEND);
  try {
    claim_and_cut_back(keep_until);
  } catch (...) {
    ::close(file_);
    throw;
  }
}

MetricsFile::~MetricsFile() { ::close(file_); }

void MetricsFile::claim_and_cut_back(std::uint64_t keep_until) {
  struct stat status {};
  if (::fstat(file_, &status) != 0) fail(errno);
  if (!S_ISREG(status.st_mode)) return;  // a pipe or a device cannot be cut, and several may write to it
  if (!files::lock_open_file(file_)) {
    throw UsageError(fmt::format(
        "'{}' is being written by another training: wait for it to end, or choose another file for --metrics", path_));
  }
  if (!is_metrics_file(path_)) {
    throw UsageError(
        fmt::format("'{}' does not begin with a line of metrics, so it was not changed: choose another file for "
                    "--metrics",
                    path_));
  }
  std::size_t kept = 0;
  if (keep_until > 0) {
    const files::Bytes bytes = files::read_file(path_);
    kept = bytes_until(bytes.text(), keep_until);
    const std::string_view lines = bytes.text().substr(0, kept);
    if (kept > 0) last_step_ = last_line(lines).at("step").get<std::uint64_t>();
    seconds_ = last_seconds(lines);
  }
  if (::ftruncate(file_, static_cast<off_t>(kept)) != 0) fail(errno);
}

void MetricsFile::write_missing(const Json& lines) {
  for (const Json& line : lines) {
    if (line.at("step").get<std::uint64_t>() <= last_step_) continue;
    write(line);
    seconds_ = line.value("seconds", seconds_);
  }
}

void MetricsFile::write(const Json& json) {
  const std::string line = shown(json) + '\n';
  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t written = ::write(file_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(errno);
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
}

void MetricsFile::fail(int error) const {
  throw std::runtime_error(fmt::format("cannot write '{}': {}", path_, std::generic_category().message(error)));
}

}  // namespace sparsewire::train
