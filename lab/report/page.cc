#include "report/page.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <utility>

#include "files/input.h"
#include "files/replace.h"
#include "sparsewire/errors.h"

namespace sparsewire::report {
namespace {

constexpr std::string_view kDoctype = "<!doctype html>";
constexpr std::string_view kMarker = "\n<!-- a report of sparsewire -->";

std::string escaped(std::string_view text) {
  std::string html;
  for (const char letter : text) {
    switch (letter) {
      case '&':
        html += "&amp;";
        break;
      case '<':
        html += "&lt;";
        break;
      case '>':
        html += "&gt;";
        break;
      case '"':
        html += "&quot;";
        break;
      case '\'':
        html += "&#39;";
        break;
      default:
        html += letter;
    }
  }
  return html;
}

// What is not UTF-8 is replaced.
std::string valid(std::string_view text) {
  const std::string quoted = Json(std::string(text)).dump(-1, ' ', false, Json::error_handler_t::replace);
  return Json::parse(quoted).get<std::string>();
}

bool begins_with_doctype(std::string_view html) {
  return html.size() >= kDoctype.size() &&
         std::equal(kDoctype.begin(), kDoctype.end(), html.begin(),
                    [](char a, char b) { return a == std::tolower(static_cast<unsigned char>(b)); });
}

}  // namespace

std::string filled(std::string_view html, std::string_view title, std::string_view data) {
  struct Place {
    std::string_view name;
    std::string_view piece;
    std::size_t at;
  };
  std::array places{Place{"{{TITLE}}", title, 0}, Place{"{{DATA}}", data, 0}};
  for (Place& place : places) {
    place.at = html.find(place.name);
    if (place.at == std::string_view::npos || html.find(place.name, place.at + 1) != std::string_view::npos) {
      throw std::logic_error(fmt::format("page.html does not have {} once", place.name));
    }
  }
  std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) { return a.at < b.at; });
  std::string page;
  std::size_t from = 0;
  for (const Place& place : places) {
    page += html.substr(from, place.at - from);
    page += place.piece;
    from = place.at + place.name.size();
  }
  page += html.substr(from);
  return page;
}

std::string page_text(const Document& document) {
  std::string page = filled(kPageHtml, escaped(valid(document.title)), to_text(document));
  if (!begins_with_doctype(page)) throw std::logic_error("page.html does not begin with <!doctype html>");
  page.insert(kDoctype.size(), kMarker);  // by which a later report knows that it may write over it
  return page;
}

bool is_page(const std::string& path) {
  const files::Bytes bytes = files::Input(path).read(kDoctype.size() + kMarker.size());
  return begins_with_doctype(bytes.text()) && bytes.text().ends_with(kMarker);
}

void check_output(const std::string& path) {
  std::error_code error;  // what cannot be looked at cannot be written either, and that says why
  if (!std::filesystem::is_regular_file(path, error) || std::filesystem::file_size(path, error) == 0) return;
  if (is_page(path)) return;
  throw UsageError(
      fmt::format("'{}' is there, and is not a report of sparsewire, so it was not changed: name another file", path));
}

void write_page(const Document& document, const std::string& path) {
  check_output(path);
  const std::string page = page_text(document);
  files::Replacement file(path);
  file.write(std::as_bytes(std::span(page)));
  file.commit();
}

}  // namespace sparsewire::report
