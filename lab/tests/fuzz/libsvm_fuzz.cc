// Fuzzes the reader of LIBSVM files, compressed or not. Any bytes give a UsageError that names the file, or consistent
// rows.
#include <algorithm>
#include <cmath>
#include <string_view>

#include "data/gzip.h"
#include "data/libsvm.h"
#include "require.h"
#include "sparsewire/errors.h"

namespace sparsewire {
namespace {

void check(const train::LabelledRows& data) {
  const train::SparseRows& rows = data.rows;
  require(data.label.size() == rows.size(), "every row has a label");
  require(rows.begin.back() == rows.index.size() && rows.index.size() == rows.value.size(), "rows end with the data");
  for (const std::uint32_t label : data.label) require(label < data.labels.size(), "labels are known");
  for (const double value : rows.value) require(std::isfinite(value), "values are finite");
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const auto indices = rows.indices(row);
    require(std::adjacent_find(indices.begin(), indices.end(), std::greater_equal<>()) == indices.end(),
            "indices ascend");
    require(indices.empty() || indices.back() < rows.dim, "indices are below dim");
  }
}

}  // namespace
}  // namespace sparsewire

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sparsewire;
  try {
    const std::string_view bytes(reinterpret_cast<const char*>(data), size);
    check(train::is_gzip(bytes) ? train::parse_libsvm(train::gunzip(bytes, "x.txt"), "x.txt")
                                : train::parse_libsvm(bytes, "x.txt"));
  } catch (const UsageError& error) {
    require(std::string_view(error.what()).find("x.txt") != std::string_view::npos, "an error names the file");
  }
  return 0;
}
