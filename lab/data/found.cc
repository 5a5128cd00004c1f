#include "data/found.h"

#include <fmt/core.h>

#include <algorithm>

#include "data/data_file.h"
#include "data/gzip.h"
#include "data/md5.h"
#include "sparsewire/errors.h"

namespace sparsewire::train {
namespace {

// No official file unpacks to more.
constexpr std::uint64_t kMostOfficialBytes = std::uint64_t{1} << 26;

bool is_official(const files::Bytes& bytes, const FoundFile& file) {
  if (file.md5 == file.info->md5 || file.md5 == file.info->packed_md5) return true;
  // Perhaps it was compressed again. Only files that are published so are read so.
  if (file.info->packed_md5.empty() || !is_gzip(bytes.text())) return false;
  return md5(DataContent(bytes.text(), file.path).first(kMostOfficialBytes)) == file.info->md5;
}

FoundFile find_file(const DataFileInfo& info, const std::string& folder) {
  FoundFile file{.info = &info, .state = FileState::missing, .path = {}, .bytes = 0, .md5 = {}};
  const std::string path = fmt::format("{}/{}", folder, info.name);
  const bool may_be_packed = !info.packed_md5.empty();
  file.path = is_there(path) ? path : may_be_packed && is_there(path + ".gz") ? path + ".gz" : "";
  if (file.path.empty()) return file;
  file.state = FileState::other;
  try {
    const files::Bytes bytes = read_data_file(file.path);
    file.bytes = bytes.size;
    file.md5 = md5(bytes.text());
    if (is_official(bytes, file)) file.state = FileState::official;
  } catch (const UsageError&) {
    // Reading the data set says the same.
  }
  return file;
}

// Throws UsageError.
void read_contents(FoundDataSet& found) {
  if (found.info->text != nullptr) {
    const TextData text = found.info->text(found.folder);
    found.contents = fmt::format("{} characters, {} different ones", text.symbols.size(), text.alphabet.size());
    found.fingerprint = text.fingerprint;
    return;
  }
  const ImageData images = found.info->images(found.folder);
  found.contents = fmt::format("{} + {} images of {}x{}x{}, {} classes", images.train.size(), images.test.size(),
                               images.train.channels, images.train.height, images.train.width, images.train.classes);
  found.fingerprint = images.fingerprint;
  found.test_fingerprint = images.test_fingerprint;
}

}  // namespace

std::string_view name_of(DataSetState state) noexcept {
  constexpr std::string_view kNames[] = {"missing", "incomplete", "official", "readable", "unreadable"};
  return kNames[static_cast<std::size_t>(state)];
}

FoundDataSet find_data_set(const DataSetInfo& info, const std::string& data_folder) {
  FoundDataSet found;
  found.info = &info;
  if (data_folder.empty()) {
    for (const DataFileInfo& file : info.files) found.files.push_back({.info = &file});
    return found;
  }
  found.folder = place_of_data_set(info, data_folder);
  for (const DataFileInfo& file : info.files) found.files.push_back(find_file(file, found.folder));
  const auto missing = static_cast<std::size_t>(std::count_if(
      found.files.begin(), found.files.end(), [](const FoundFile& file) { return file.state == FileState::missing; }));
  if (missing == found.files.size()) return found;
  if (missing > 0) {
    found.state = DataSetState::incomplete;
    return found;
  }
  try {
    read_contents(found);
    const bool is_all_official = std::all_of(found.files.begin(), found.files.end(),
                                             [](const FoundFile& file) { return file.state == FileState::official; });
    found.state = is_all_official ? DataSetState::official : DataSetState::readable;
  } catch (const UsageError& error) {
    found.state = DataSetState::unreadable;
    found.message = error.what();
  }
  return found;
}

}  // namespace sparsewire::train
