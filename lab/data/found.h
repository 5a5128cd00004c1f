// Which of the known data sets are there, and whether they are the official ones: what `sparsewire data` shows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/data_sets.h"

namespace sparsewire::train {

enum class FileState : std::uint8_t {
  missing,
  official,  // its content has the official checksum, compressed or not
  other,     // it has another checksum
};

struct FoundFile {
  const DataFileInfo* info = nullptr;
  FileState state = FileState::missing;
  std::string path;         // empty: missing
  std::uint64_t bytes = 0;  // as it is, packed or not
  std::string md5;          // of the same; empty: missing or unreadable
};

enum class DataSetState : std::uint8_t {
  missing,     // there is no folder, or none of the files is in it
  incomplete,  // some files are there
  official,    // it can be read, and all files are the official ones
  readable,    // it can be read, but it is not the official data set
  unreadable,  // all files are there, but they cannot be read
};
std::string_view name_of(DataSetState state) noexcept;

struct FoundDataSet {
  const DataSetInfo* info = nullptr;
  DataSetState state = DataSetState::missing;
  std::string folder;            // where it is, or should be; empty if there is no folder of data sets
  std::vector<FoundFile> files;  // one for each official file
  std::string message;           // why it cannot be read; empty if it can, or if it is missing
  std::string contents;          // "60,000 + 10,000 images of 1x28x28, 10 classes"; empty unless it can be read
  std::string fingerprint;       // as Problem::data_fingerprint(); empty unless it can be read
  std::string test_fingerprint;
};

// Reads everything that is there. `data_folder`: empty if there is none. COST: some hundred MB a second.
FoundDataSet find_data_set(const DataSetInfo& info, const std::string& data_folder);

}  // namespace sparsewire::train
