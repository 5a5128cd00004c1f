// The page: one HTML file with its style, its script and its data. Its parts are in lab/report/page/ and become part of
// the program when it is built.
#pragma once

#include <string>
#include <string_view>

#include "report/document.h"

namespace sparsewire::report {

// All of it but the title and the data, as it is in the program (report/embed.cmake).
extern const std::string_view kPageHtml;

// A whole page.
std::string page_text(const Document& document);

// Puts the pieces into their places in one pass, so that a place's name in a piece stays as it is. Throws
// std::logic_error if a place is not there exactly once.
std::string filled(std::string_view html, std::string_view title, std::string_view data);

// Throws UsageError if there is something that is not a report of ours, and so is not to be written over.
void check_output(const std::string& path);

// Writes the page whole or not at all. Throws UsageError as check_output(), std::runtime_error if it cannot be written.
void write_page(const Document& document, const std::string& path);

// Whether the file begins as our pages do.
bool is_page(const std::string& path);

}  // namespace sparsewire::report
