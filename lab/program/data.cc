// sparsewire data: which data sets are there, whether they are the official ones, and where those come from.
#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "commands.h"
#include "data/found.h"
#include "message.h"
#include "options.h"
#include "terminal.h"
#include "text/environment.h"

namespace sparsewire::cli {
namespace {

using train::DataSetState;
using train::FileState;
using train::FoundDataSet;
using train::FoundFile;

struct DataOptions {
  std::vector<std::string> names;
  std::string folder;
  std::optional<std::string> json;
};

std::string state_text(const FoundDataSet& found) {
  switch (found.state) {
    case DataSetState::missing:
      return "missing";
    case DataSetState::incomplete:
      return fmt::format("incomplete, {} of {} files are missing",
                         std::count_if(found.files.begin(), found.files.end(),
                                       [](const FoundFile& file) { return file.state == FileState::missing; }),
                         found.files.size());
    case DataSetState::official:
      return "official, " + found.contents;
    case DataSetState::readable:
      return "readable, but not the official files; " + found.contents;
    case DataSetState::unreadable:
      return "unreadable: " + printable(found.message);
  }
  return {};
}

// The checksum that the file has; of one that is missing or cannot be read, that which it should have.
std::string file_text(const FoundFile& file) {
  const train::DataFileInfo& info = *file.info;
  const bool is_packed = file.path.empty() ? !info.packed_md5.empty() : file.path.ends_with(".gz");
  const std::string name = std::string(info.name) + (is_packed ? ".gz" : "");
  const std::string official(is_packed ? info.packed_md5 : info.md5);
  const auto row = [](const std::string& md5, const std::string& what, const char* state) {
    return fmt::format("  {:<32}  {:<26}  {}\n", md5, what, state);
  };
  if (file.state == FileState::missing) return row(official, name, "missing");
  if (file.state == FileState::official) return row(file.md5, name, "official");
  if (file.md5.empty()) return row(official, name, "unreadable");
  return row(file.md5, name, "differs") + row(official, "", "officially");
}

std::string data_set_text(const FoundDataSet& found) {
  const train::DataSetInfo& info = *found.info;
  std::string text = wrapped(fmt::format("{}: {}\n", info.name, state_text(found)));
  if (found.contents.empty()) text += fmt::format("  {}\n", info.summary);
  text += fmt::format("  from {}\n", info.source);
  if (!info.note.empty()) text += fmt::format("       ({})\n", info.note);
  if (!found.folder.empty()) text += fmt::format("  in   {}\n", printable(found.folder));
  for (const FoundFile& file : found.files) text += file_text(file);
  return text;
}

Json file_json(const FoundFile& file) {
  constexpr const char* kStates[] = {"missing", "official", "other"};
  Json json{{"name", file.info->name}, {"state", kStates[static_cast<std::size_t>(file.state)]}};
  if (!file.path.empty()) json["path"] = file.path;
  if (!file.md5.empty()) {
    json["bytes"] = file.bytes;
    json["md5"] = file.md5;
  }
  json["official_md5"] = file.info->md5;
  if (!file.info->packed_md5.empty()) json["official_gz_md5"] = file.info->packed_md5;
  return json;
}

Json data_set_json(const FoundDataSet& found) {
  Json json{{"name", found.info->name},
            {"state", train::name_of(found.state)},
            {"summary", found.info->summary},
            {"source", found.info->source}};
  for (const auto& [key, value] :
       {std::pair("folder", found.folder), std::pair("message", found.message), std::pair("contents", found.contents),
        std::pair("fingerprint", found.fingerprint), std::pair("test_fingerprint", found.test_fingerprint)}) {
    if (!value.empty()) json[key] = value;
  }
  json["files"] = Json::array();
  for (const FoundFile& file : found.files) json["files"].push_back(file_json(file));
  return json;
}

// Without a folder it lists what there could be.
std::string folder_of(const DataOptions& options) {
  return options.folder.empty() && environment::data().empty() ? "" : train::data_folder(options.folder);
}

void show_data(const DataOptions& options) {
  std::vector<const train::DataSetInfo*> chosen;
  for (const std::string& name : options.names) chosen.push_back(&train::data_set_info(name));
  if (chosen.empty()) {
    for (const train::DataSetInfo& info : train::data_sets()) chosen.push_back(&info);
  }
  const std::string folder = folder_of(options);
  Json json{{"data_dir", folder.empty() ? Json() : Json(folder)}, {"data_sets", Json::array()}};
  std::string text = folder.empty() ? "No folder of data sets is named: give --data-dir, or set SPARSEWIRE_DATA.\n"
                                    : fmt::format("Data sets in {}, and the MD5 of their files\n", printable(folder));
  bool is_good = true;
  for (const train::DataSetInfo* info : chosen) {
    const FoundDataSet found = train::find_data_set(*info, folder);
    text += "\n" + data_set_text(found);
    json["data_sets"].push_back(data_set_json(found));
    const bool is_readable = found.state == DataSetState::official || found.state == DataSetState::readable;
    is_good = is_good && (options.names.empty() ? found.state != DataSetState::unreadable : is_readable);
  }
  Report report(options.json, json, text);
  report.print();
  report.commit();
  if (!is_good) throw SilentFailure(kFailed);
}

}  // namespace

void add_data(CLI::App& program) {
  CLI::App* const command = program.add_subcommand("data", "Show which data sets are there, and verify them");
  command->footer(
      "Reads and verifies the data sets in the folder that --data-dir or the variable\n"
      "SPARSEWIRE_DATA names, and says where the official files come from, and their\n"
      "MD5. Nothing is downloaded. The exit code is 1 if a data set that is there\n"
      "cannot be read, or if one of those that are named is missing.\n\n"
      "Examples:\n  sparsewire data --data-dir data\n  sparsewire data mnist cifar10 --json -");
  const auto options = std::make_shared<DataOptions>();
  command->add_option("NAME", options->names, "Data sets (default: all that are known)")->type_name("");
  command->add_option("--data-dir", options->folder, "The folder of the data sets (default: SPARSEWIRE_DATA)")
      ->type_name("DIR");
  add_json(*command, options->json);
  command->callback([options] { show_data(*options); });
}

}  // namespace sparsewire::cli
