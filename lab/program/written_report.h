// Pages that commands write by themselves, beside their results.
#pragma once

#include <functional>
#include <string>

#include "report/document.h"

namespace sparsewire::cli {

// Writes the page, and returns whether that was possible. If not, the results are there all the same, so it is a
// warning and not an error.
bool write_report(const std::string& path, const std::function<report::Document()>& collect);

// For the end of a text: where the page is.
std::string report_line(const std::string& path);

}  // namespace sparsewire::cli
