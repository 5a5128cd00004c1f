// What an earlier comparison left in the folder of a new one.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace sparsewire::cli {

// It would look like a part of the new comparison. So it is set aside, in a folder of its own, and removed when the new
// one has a result; if that never has one, it is put back.
class EarlierComparison {
 public:
  // `usual`: the metrics files of the usual methods, which may be there although no summary names them. Throws
  // UsageError, and changes nothing, if there is a summary of something else.
  EarlierComparison(const std::string& folder, const std::vector<std::string>& usual);
  ~EarlierComparison();
  EarlierComparison(const EarlierComparison&) = delete;
  EarlierComparison& operator=(const EarlierComparison&) = delete;

  void remove();

 private:
  void put_back() noexcept;

  std::filesystem::path folder_;
  std::filesystem::path aside_;
};

}  // namespace sparsewire::cli
