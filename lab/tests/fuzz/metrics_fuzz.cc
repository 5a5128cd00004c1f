// Fuzzes the reader of metrics files, and what a report makes of them. Any bytes, in any pieces, give the same rows,
// and a page whose data are JSON and cannot leave their element.
#include <algorithm>
#include <string_view>

#include "report/collect.h"
#include "report/document.h"
#include "report/metrics_reader.h"
#include "require.h"

namespace sparsewire {
namespace {

constexpr std::size_t kMost = 20;

report::Metrics read(std::string_view bytes, std::size_t piece) {
  report::MetricsReader reader("x.jsonl", kMost);
  for (std::size_t at = 0; at < bytes.size(); at += piece) reader.add(bytes.substr(at, piece));
  return reader.finish();
}

void check(std::string_view bytes) {
  report::Metrics metrics = read(bytes, bytes.size() + 1);
  const report::Metrics in_pieces = read(bytes, 3);
  require(metrics.lines == in_pieces.lines && metrics.notices == in_pieces.notices, "pieces do not matter");
  require(metrics.series.rows().size() == in_pieces.series.rows().size(), "pieces do not matter for the rows");
  require(metrics.series.rows().size() <= metrics.lines, "a row is a line");
  require(std::is_sorted(metrics.series.rows().begin(), metrics.series.rows().end(),
                         [](const report::Row& a, const report::Row& b) { return a.values[0] < b.values[0]; }),
          "steps ascend");
  report::Document document;
  report::add_notices("x", metrics.notices, document);
  document.runs.push_back(report::run_of(std::move(metrics), /*is_live=*/false));
  document.runs.back().series.thin(kMost);
  require(document.runs.back().series.rows().size() <= kMost, "long files are thinned");
  const std::string text = report::to_text(document);
  require(text.find('<') == std::string::npos, "no element ends in the data");
  require(report::Json::parse(text).at("runs").size() == 1, "the data are JSON");
}

}  // namespace
}  // namespace sparsewire

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  sparsewire::check({reinterpret_cast<const char*>(data), size});
  return 0;
}
