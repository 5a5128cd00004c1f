// What the sub-commands have in common: options that they read, and reports that they write, in the same way.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "files/replace.h"

namespace sparsewire::cli {

using Json = nlohmann::ordered_json;

// CLI11 sets an option when it parses the command line, which is after the command was added. So `path` and `value`
// must live as long as the command.
void add_json(CLI::App& command, std::optional<std::string>& path);
// Libraries are loaded before the command runs, and before options that come later are read.
void add_load(CLI::App& command);
// CLI11 itself would read 010 as 8.
void add_integer(CLI::App& command, const std::string& name, std::optional<std::uint64_t>& value, std::uint64_t min,
                 std::uint64_t max, const std::string& help);
void add_float(CLI::App& command, const std::string& name, std::optional<float>& value, const std::string& help);

// "-" stands for standard input and output.
std::string input_path(const std::string& given);
std::string output_path(const std::string& given);

struct NamedFile {
  std::string option;
  std::optional<std::string> path;
};
// Throws UsageError if two of them are the same file: one would overwrite the other.
void check_distinct(std::initializer_list<NamedFile> files);

// Throws if nothing can be written there: better now than after hours of work. A pipe is not opened, since its
// reader would take that for the whole report.
void check_place(const std::optional<std::string>& json_path);

// The result of a command: a text for people, and JSON for --json FILE, or instead of the text with --json -.
class Report {
 public:
  // The JSON is written to a temporary file: what can fail, fails here.
  Report(const std::optional<std::string>& json_path, const Json& json, std::string text);
  // To be called before any file is changed: a standard output that cannot be written is an error like any other.
  void print() const;
  // Renames the temporary file.
  void commit();

 private:
  std::string printed_;
  std::unique_ptr<files::Replacement> file_;
};

// Makes a closed pipe, or a file that grows beyond the limit, an error of the write instead of a signal. So it is
// reported, and temporary files are removed.
void ignore_broken_outputs();

}  // namespace sparsewire::cli
