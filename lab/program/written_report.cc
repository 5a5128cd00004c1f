#include "written_report.h"

#include <fmt/core.h>

#include <exception>

#include "message.h"
#include "report/page.h"

namespace sparsewire::cli {

bool write_report(const std::string& path, const std::function<report::Document()>& collect) {
  try {
    report::write_page(collect(), path);
    return true;
  } catch (const std::exception& error) {
    complain(fmt::format("warning: there is no report: {}", error.what()));
    return false;
  }
}

std::string report_line(const std::string& path) { return fmt::format("\nReport: {}\n", printable(path)); }

}  // namespace sparsewire::cli
