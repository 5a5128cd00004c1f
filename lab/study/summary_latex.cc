// summary.tex: the tables of summary.md for a paper, with booktabs.
#include <fmt/format.h>

#include <cctype>

#include "study/references.h"
#include "study/summary_page.h"
#include "study/tables.h"

namespace sparsewire::study {
namespace {

// Any text as TeX prints it: nothing in it is a command, joins its neighbour to another character (-- is a dash), or is
// an option of the command before it, as a star or a bracket at the start of a row would be.
std::string latex(const std::string& text) {
  // The name of a file may have any bytes; TeX takes only UTF-8.
  const std::string valid =
      Json::parse(Json(text).dump(-1, ' ', false, Json::error_handler_t::ignore)).get<std::string>();
  std::string shown;
  for (std::size_t i = 0; i < valid.size(); ++i) {
    const char letter = valid[i];
    const char next = i + 1 < valid.size() ? valid[i + 1] : ' ';
    if (letter == '+' && next == '-') {
      shown += "$\\pm$ ";
      ++i;
    } else if (i == 0 && letter == '-' && std::isdigit(static_cast<unsigned char>(next)) != 0) {
      shown += "$-$";
    } else if (letter == '\\') {
      shown += "\\textbackslash{}";
    } else if (std::string_view("{}$&#%_").find(letter) != std::string_view::npos) {
      shown += std::string("\\") + letter;
    } else if (std::string_view("<>|").find(letter) != std::string_view::npos) {
      shown += std::string("$") + letter + "$";
    } else if (std::string_view("^~\"'`").find(letter) != std::string_view::npos) {
      shown += fmt::format("{{\\char{}}}", static_cast<int>(letter));
    } else if (std::string_view("*[").find(letter) != std::string_view::npos) {
      shown += std::string("{") + letter + "}";
    } else if (std::iscntrl(static_cast<unsigned char>(letter)) != 0) {
      shown += ' ';
    } else {
      shown += letter;
      if (next == letter && (letter == '-' || letter == ',')) shown += "{}";
    }
  }
  return shown;
}

std::string row_of(const std::vector<std::string>& cells) {
  std::string text;
  for (const std::string& cell : cells) text += (text.empty() ? "" : " & ") + (cell == kNothing ? "--" : latex(cell));
  return "    " + text + " \\\\\n";
}

std::string sheet_latex(const Sheet& sheet, const std::string& about, const std::vector<std::string>& notes) {
  std::string text = "\n\\begin{table}\n  \\centering\n";
  text += "  \\caption{" + latex(about + ". " + sheet.heading) + "}\n";
  text += "  \\label{tab:\\sparsewirestudy-" + sheet.name + "}\n  \\small\n";
  text += "  \\begin{tabular}{@{}l" + std::string(sheet.titles.size() - 1, 'r') + "@{}}\n    \\toprule\n";
  text += row_of(sheet.titles) + "    \\midrule\n";
  for (const auto& row : sheet.rows) text += row_of(row);
  text += "    \\bottomrule\n  \\end{tabular}\n";
  if (!notes.empty()) text += "  \\par\\medskip\\raggedright\\footnotesize\n";
  for (const std::string& note : notes) text += "  " + latex(note) + "\\par\n";
  return text + "\\end{table}\n";
}

}  // namespace

std::string summary_latex(const Results& results) {
  const Plan& plan = results.plan;
  const Page page = page_of(results);
  std::string keys;
  for (const Reference& one : references(plan)) keys += (keys.empty() ? "" : ",") + one.key;
  std::string text = fmt::format(
      "% Tables of a study by sparsewire {}, for a paper with \\usepackage{{booktabs}}: \\input this file.\n"
      "% Judged on seeds {}; {}.\n"
      "% All settings: {}\n"
      "% Cite, from references.bib: \\cite{{{}}}\n"
      "% Labels are tab:study-measures and so on. For another word than study: \\def\\sparsewirestudy{{word}} before.\n"
      "\\providecommand{{\\sparsewirestudy}}{{study}}\n",
      SPARSEWIRE_VERSION, fmt::join(plan.seeds, ", "),
      plan.tune_seeds.empty() ? "settings were given"
                              : fmt::format("settings were chosen on seeds {}", fmt::join(plan.tune_seeds, ", ")),
      to_json(plan).at("config").dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace), keys);
  for (const Sheet& sheet : page.sheets) {
    const bool is_last = &sheet == &page.sheets.back();
    text += sheet_latex(sheet, page.heading, is_last ? page.notes : std::vector<std::string>{});
  }
  return text;
}

}  // namespace sparsewire::study
