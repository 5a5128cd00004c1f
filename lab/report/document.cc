#include "report/document.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace sparsewire::report {
namespace {

constexpr double kExact = 9007199254740992;  // 2^53: smaller whole numbers are exact

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

// Numbers that are not finite would be null: they come from JSON, so there are none.
std::string dumped(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

// Whole numbers exactly, others to 8 digits: more than a chart shows, and half the size.
void append_number(double number, std::string& text) {
  if (is_missing(number)) {
    text += "null";
  } else if (std::isnan(number)) {
    text += "\"nan\"";
  } else if (std::isinf(number)) {
    text += number > 0 ? "\"inf\"" : "\"-inf\"";
  } else if (number == std::trunc(number) && std::abs(number) < kExact) {
    text += std::to_string(static_cast<std::int64_t>(number));
  } else {
    text += fmt::format("{:.8g}", number);
  }
}

void append_series(const Series& series, std::string& text) {
  text += '{';
  bool is_first = true;
  for (std::size_t column = 0; column < series.names().size(); ++column) {
    const bool has_any = std::any_of(series.rows().begin(), series.rows().end(),
                                     [&](const Row& row) { return !is_missing(series.at(row, column)); });
    if (!has_any) continue;
    if (!is_first) text += ',';
    is_first = false;
    text += dumped(series.names()[column]) + ":[";
    for (std::size_t i = 0; i < series.rows().size(); ++i) {
      if (i > 0) text += ',';
      append_number(series.at(series.rows()[i], column), text);
    }
    text += ']';
  }
  text += '}';
}

void append_run(const ReportedRun& run, std::string& text) {
  const Json json{{"id", run.id},
                  {"method", run.method},
                  {"phase", run.phase},
                  {"seed", or_null(run.seed)},
                  {"lr", or_null(run.lr)},
                  {"chosen", run.is_chosen},
                  {"status", run.status},
                  {"diverged_at", or_null(run.diverged_at)},
                  {"seconds", or_null(run.seconds)},
                  {"config", run.config},
                  {"result", run.result},
                  {"lines", run.lines}};
  text += dumped(json);
  text.back() = ',';
  text += "\"series\":";
  append_series(run.series, text);
  text += '}';
}

}  // namespace

std::optional<std::uint64_t> weights_of(const Series& series) {
  const std::size_t entries = series.find("entries_total");
  const std::size_t density = series.find("density");
  for (const Row& row : series.rows()) {
    const double weights = series.at(row, entries) / series.at(row, density);
    if (weights >= 1 && weights < kExact) return static_cast<std::uint64_t>(std::llround(weights));
  }
  return std::nullopt;
}

void thin(Document& document) {
  std::size_t all = 0;
  std::size_t with_rows = 0;
  for (const ReportedRun& run : document.runs) {
    all += run.series.rows().size();
    if (!run.series.rows().empty()) ++with_rows;
  }
  std::size_t most = kMostLinesOfARun;
  if (all > kMostLines) most = std::max(Series::kFewest, std::min(most, kMostLines / with_rows));
  std::size_t thinned = 0;
  std::uint64_t lines = 0;
  std::uint64_t kept = 0;
  for (ReportedRun& run : document.runs) {
    run.series.thin(most);
    if (!run.series.is_thinned()) continue;
    ++thinned;
    lines += run.lines;
    kept += run.series.rows().size();
  }
  if (thinned == 0) return;
  document.notices.push_back(
      fmt::format("{} of {} lines of metrics are shown, of {}: the first and the last, evaluations, and those with "
                  "the smallest and largest loss of equally long parts",
                  kept, lines, thinned == 1 ? "one run" : fmt::format("{} runs", thinned)));
}

std::string escaped_for_html(std::string_view json) {
  std::string text;
  text.reserve(json.size() + json.size() / 64);
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char letter = json[i];
    if (letter == '<') {
      text += "\\u003c";
    } else if (letter == '>') {
      text += "\\u003e";
    } else if (letter == '&') {
      text += "\\u0026";
    } else if (json.substr(i, 3) == "\xe2\x80\xa8" || json.substr(i, 3) == "\xe2\x80\xa9") {
      text += json[i + 2] == '\xa8' ? "\\u2028" : "\\u2029";  // JavaScript's ends of lines
      i += 2;
    } else {
      text += letter;
    }
  }
  return text;
}

std::string to_text(const Document& document) {
  Json methods = Json::array();
  for (const ReportedMethod& method : document.methods) {
    methods.push_back({{"name", method.name},
                       {"ratio", or_null(method.ratio)},
                       {"label", method.label},
                       {"spec", or_null(method.spec)}});
  }
  Json timings = Json::object();
  for (const ReportedRun& run : document.runs) {
    if (run.seconds) timings[run.id] = *run.seconds;
  }
  const Json live = document.live ? Json{{"every", *document.live}, {"finished", document.is_finished}} : Json(nullptr);
  const Json head{{"schema", kSchema},
                  {"kind", document.kind},
                  {"title", document.title},
                  {"made_by", "sparsewire " SPARSEWIRE_VERSION},
                  {"problem", or_null(document.problem)},
                  {"notices", document.notices},
                  {"live", live},
                  {"summary", document.summary},
                  {"methods", methods},
                  {"timings", timings},
                  {"reproduction", document.reproduction}};
  std::string text = dumped(head);
  text.back() = ',';
  text += "\"runs\":[";
  for (std::size_t i = 0; i < document.runs.size(); ++i) {
    if (i > 0) text += ",\n";
    append_run(document.runs[i], text);
  }
  text += "]}";
  return escaped_for_html(text);
}

}  // namespace sparsewire::report
