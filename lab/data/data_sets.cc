#include "data/data_sets.h"

#include <fmt/core.h>

#include <array>
#include <filesystem>
#include <system_error>

#include "sparsewire/errors.h"
#include "text/environment.h"
#include "text/names.h"

namespace sparsewire::train {
namespace {

bool is_folder(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

// Throws UsageError if there is no such folder.
std::string folder_of(const DataSetInfo& info, const std::string& data_folder) {
  std::string folder = place_of_data_set(info, data_folder);
  if (is_folder(folder)) return folder;
  throw UsageError(
      fmt::format("the data set {} is missing: there is no folder '{}'; 'sparsewire data' says where to get "
                  "it",
                  info.name, folder));
}

}  // namespace

std::span<const DataSetInfo> data_sets() noexcept {
  static const std::array kAll{
#define DATA_SET(name) name##_data_set(),
#include "data/data_sets.def"
#undef DATA_SET
  };
  return kAll;
}

const DataSetInfo& data_set_info(std::string_view name) {
  return data_sets()[find_by_name(data_sets(), name, "a data set")];
}

std::string data_folder(const std::string& given) {
  const std::string folder = given.empty() ? environment::data() : given;
  if (folder.empty()) {
    throw UsageError(
        "where are the data sets? Name their folder with --data-dir or in the environment variable "
        "SPARSEWIRE_DATA; 'sparsewire data' lists what belongs there");
  }
  if (!is_folder(folder)) {
    throw UsageError(fmt::format("'{}', which {} names, is not a folder that can be read", folder,
                                 given.empty() ? "SPARSEWIRE_DATA" : "--data-dir"));
  }
  return folder;
}

std::string place_of_data_set(const DataSetInfo& info, const std::string& data_folder) {
  const std::string folder = fmt::format("{}/{}", data_folder, info.name);
  if (info.inner_folder.empty()) return folder;
  const std::string inner = fmt::format("{}/{}", folder, info.inner_folder);
  return is_folder(inner) ? inner : folder;
}

ImageData read_images(std::string_view name, const std::string& data_folder) {
  const DataSetInfo& info = data_set_info(name);
  return info.images(folder_of(info, data_folder));
}

TextData read_text(std::string_view name, const std::string& data_folder) {
  const DataSetInfo& info = data_set_info(name);
  return info.text(folder_of(info, data_folder));
}

}  // namespace sparsewire::train
