#include "earlier_comparison.h"

#include <fmt/core.h>

#include <exception>
#include <system_error>

#include "files/input.h"
#include "loop/config.h"
#include "loop/loop.h"
#include "report/page.h"
#include "sparsewire/errors.h"

namespace sparsewire::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSummary = "summary.json";
constexpr const char* kPage = "report.html";

// The metrics files that a summary names. Throws UsageError if it is of something else.
std::vector<std::string> named_in(const fs::path& summary) {
  try {
    std::vector<std::string> names;
    const Json json = train::parse_json(files::read_file(summary.string()).text());
    for (const Json& row : json.at("methods")) names.push_back(row.at("metrics").get<std::string>());
    if (json.contains("ratio")) return names;
  } catch (const std::exception&) {  // of something else
  }
  throw UsageError(fmt::format("'{}' is not of a comparison, so it was not changed: choose another folder for --out",
                               summary.string()));
}

// The files of a comparison: those that its summary names, and the usual ones; and only metrics.
std::vector<std::string> files_in(const fs::path& folder, const std::vector<std::string>& usual) {
  std::vector<std::string> found;
  std::vector<std::string> metrics = usual;
  if (fs::is_regular_file(folder / kSummary)) {
    const std::vector<std::string> named = named_in(folder / kSummary);
    metrics.insert(metrics.end(), named.begin(), named.end());
    found.emplace_back(kSummary);
  }
  const fs::path page = folder / kPage;
  if (fs::is_regular_file(page) && report::is_page(page.string())) found.emplace_back(kPage);
  for (const std::string& name : metrics) {
    const bool is_plain = name.find('/') == std::string::npos;
    if (is_plain && train::is_metrics_file((folder / name).string())) found.push_back(name);
  }
  return found;
}

}  // namespace

EarlierComparison::EarlierComparison(const std::string& folder, const std::vector<std::string>& usual)
    : folder_(folder), aside_(folder_ / ".earlier") {
  if (!fs::exists(folder_ / kSummary)) put_back();  // set aside by a comparison that was killed
  const std::vector<std::string> names = files_in(folder_, usual);
  fs::remove_all(aside_);
  if (names.empty()) return;
  fs::create_directory(aside_);
  for (const std::string& name : names) {
    if (fs::exists(folder_ / name)) fs::rename(folder_ / name, aside_ / name);  // a name may be there twice
  }
}

EarlierComparison::~EarlierComparison() { put_back(); }

void EarlierComparison::remove() { fs::remove_all(aside_); }

void EarlierComparison::put_back() noexcept {
  std::error_code error;
  for (const fs::directory_entry& one : fs::directory_iterator(aside_, error)) {
    fs::rename(one.path(), folder_ / one.path().filename(), error);
  }
  fs::remove(aside_, error);  // if it is empty
}

}  // namespace sparsewire::cli
