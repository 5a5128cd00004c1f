// The data sets that sparsewire knows: what they consist of, where they officially come from, where they are found.
//
// Each is a folder of one folder, which --data-dir or SPARSEWIRE_DATA names. Nothing is ever downloaded.
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
};
// All of them.
std::span<const DataSetInfo> data_sets() noexcept;
// Throws UsageError, which lists the names that there are.
const DataSetInfo& data_set_info(std::string_view name);

// The folder of all data sets: `given` (--data-dir) unless it is empty, else SPARSEWIRE_DATA. Throws UsageError if
// there is neither, or no such folder.
std::string data_folder(const std::string& given);

// The folder in which one of them is, or should be. CIFAR-10 may be in the folder that its archive makes:
// cifar10/cifar-10-batches-bin.
std::string place_of_data_set(std::string_view name, const std::string& data_folder);
// The same. Throws UsageError if there is no such folder.
std::string data_set_folder(std::string_view name, const std::string& data_folder);

// "mnist", "fashion-mnist" or "cifar10". Throws UsageError.
ImageData read_images(std::string_view name, const std::string& data_folder);

// tinyshakespeare/input.txt. Throws UsageError.
TextData read_tinyshakespeare(const std::string& data_folder);

}  // namespace sparsewire::train
