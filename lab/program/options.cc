#include "options.h"

#include <fmt/core.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "loop/plugins.h"
#include "sparsewire/errors.h"
#include "text/number.h"

namespace sparsewire::cli {
namespace {

template <class Number>
std::optional<Number> parse(const std::string& given, Number min, Number max) {
  const auto number = parse_number<Number>(given);
  return number && *number >= min && *number <= max ? number : std::nullopt;
}

}  // namespace

void add_json(CLI::App& command, std::optional<std::string>& path) {
  command.add_option("--json", path, "Also write a report to FILE; - prints it instead of the text")->type_name("FILE");
}

void add_load(CLI::App& command) {
  command
      .add_option_function<std::vector<std::string>>(
          "--load", [](const std::vector<std::string>& paths) { std::ranges::for_each(paths, train::load_plugin); },
          "A shared library with sparsifiers of your own (sparsewire/plugin.h)")
      ->type_name("LIB")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void add_integer(CLI::App& command, const std::string& name, std::optional<std::uint64_t>& value, std::uint64_t min,
                 std::uint64_t max, const std::string& help) {
  const auto read = [&value, name, min, max](const std::string& given) {
    value = parse(given, min, max);
    if (!value)
      throw CLI::ValidationError(name, fmt::format("'{}' is not a whole number in [{}, {}]", given, min, max));
  };
  command.add_option_function<std::string>(name, read, help)
      ->type_name("N")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

void add_float(CLI::App& command, const std::string& name, std::optional<float>& value, const std::string& help) {
  const auto read = [&value, name](const std::string& given) {
    constexpr float kLargest = std::numeric_limits<float>::max();
    value = parse(given, -kLargest, kLargest);
    if (!value) throw CLI::ValidationError(name, fmt::format("'{}' is not a finite number", given));
  };
  command.add_option_function<std::string>(name, read, help)
      ->type_name("X")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

std::string input_path(const std::string& given) { return given == "-" ? "/dev/stdin" : given; }
std::string output_path(const std::string& given) { return given == "-" ? "/dev/stdout" : given; }

void check_distinct(std::initializer_list<NamedFile> files) {
  for (const NamedFile* a = files.begin(); a != files.end(); ++a) {
    for (const NamedFile* b = files.begin(); b != a; ++b) {
      if (!a->path || !b->path) continue;
      const auto prints = [](const std::string& path) { return path == "-" || files::is_standard_output(path); };
      const bool both_print = prints(*a->path) && prints(*b->path);
      if (!both_print && !files::is_same_file(*a->path, *b->path)) continue;
      throw UsageError(fmt::format("{} and {} are the same file, '{}'", b->option, a->option, *b->path));
    }
  }
}

void check_place(const std::optional<std::string>& json_path) {
  if (!json_path || *json_path == "-") return;
  const auto status = std::filesystem::status(*json_path);
  if (std::filesystem::is_directory(status)) {
    throw std::runtime_error(fmt::format("cannot write '{}': Is a directory", *json_path));
  }
  if (!std::filesystem::exists(status) || std::filesystem::is_regular_file(status)) files::Replacement{*json_path};
}

Report::Report(const std::optional<std::string>& json_path, const Json& json, std::string text) {
  printed_ = std::move(text);
  if (!json_path) return;
  // A name that is not UTF-8 must not fail a command whose work is done.
  const std::string bytes = json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
  if (json_path == "-") {
    printed_ = bytes;
    return;
  }
  file_ = std::make_unique<files::Replacement>(*json_path);
  file_->write(std::as_bytes(std::span(bytes)));
  file_->prepare();
}

void Report::print() const {
  if (std::fputs(printed_.c_str(), stdout) < 0 || std::fflush(stdout) != 0) {
    throw std::runtime_error("cannot write standard output");
  }
}

void Report::commit() {
  if (file_) file_->commit();
}

void ignore_broken_outputs() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

}  // namespace sparsewire::cli
