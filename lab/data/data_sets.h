// The data sets that sparsewire knows: what they consist of, where they officially come from, where they are found.
//
// Each is a folder of one folder, which --data-dir or SPARSEWIRE_DATA names. Nothing is ever downloaded. To add one,
// write a file like cifar10.cc and a line in data_sets.def.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "data/images.h"
#include "data/pixels.h"
#include "data/text.h"

namespace sparsewire::train {

// An official file.
struct DataFileInfo {
  std::string_view name;        // unpacked
  std::string_view md5;         // unpacked
  std::string_view packed_md5;  // of name.gz, as it is published; empty: it is not
};

struct DataSetInfo {
  std::string_view name;     // also of its folder
  std::string_view summary;  // in a few words
  std::string_view source;   // an address: of a folder (ending with a slash) or of a file
  std::string_view note;     // what to do with what is found there
  std::span<const DataFileInfo> files;
  std::string_view inner_folder = {};  // that its archive makes; the files may stay there
  // How it is read from its folder: one of the two. Throws UsageError.
  ImageData (*images)(const std::string& folder) = nullptr;
  TextData (*text)(const std::string& folder) = nullptr;
  // Of images.
  std::uint32_t channels = 1;
  std::uint32_t size = 0;  // height and width
  Normalisation normalisation = {};
  bool is_augmented = false;  // in training they are shifted and mirrored, unless a problem is told otherwise
};
// All of them.
std::span<const DataSetInfo> data_sets() noexcept;
// Throws UsageError, which lists the names that there are.
const DataSetInfo& data_set_info(std::string_view name);

// The folder of all data sets: `given` (--data-dir) unless it is empty, else SPARSEWIRE_DATA. Throws UsageError if
// there is neither, or no such folder.
std::string data_folder(const std::string& given);

// The folder in which one of them is, or should be.
std::string place_of_data_set(const DataSetInfo& info, const std::string& data_folder);

// Reads the data set of that name. Throws UsageError. REQUIRES: it has images; text.
ImageData read_images(std::string_view name, const std::string& data_folder);
TextData read_text(std::string_view name, const std::string& data_folder);

#define DATA_SET(name) DataSetInfo name##_data_set() noexcept;
#include "data/data_sets.def"
#undef DATA_SET

}  // namespace sparsewire::train
