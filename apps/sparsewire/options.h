// What the sub-commands have in common: options that are read alike, and reports that are written alike.
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

// CLI11 fills an option in when the program parses, which is after the command was added; so all of them are given by
// reference to something that lives as long as the command.
void add_json(CLI::App& command, std::optional<std::string>& path);
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

// Throws if a report cannot be written there, which is better known before hours of work. A pipe is not opened: its
// reader would take that for the whole report.
void check_place(const std::optional<std::string>& json_path);

// What a command has to say: a text for people, and JSON for the file of --json, or instead of the text.
class Report {
 public:
  // The JSON is written, but not in place: what fails, fails here.
  Report(const std::optional<std::string>& json_path, const Json& json, std::string text);
  // Comes before anything is changed: a standard output that cannot be written is an error like any other.
  void print() const;
  // Puts the file in its place.
  void commit();

 private:
  std::string printed_;
  std::unique_ptr<files::Replacement> file_;
};

// A reader that leaves, or a file beyond the limit, becomes an error of the write: to be reported, with the files aside
// tidied up.
void ignore_broken_outputs();

// 25000000 as 25,000,000.
std::string grouped(std::uint64_t number);

}  // namespace sparsewire::cli
