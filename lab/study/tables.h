// The files of a study, and the table that is printed. docs/guides/study.md explains every column and field. A study
// that is not finished has them too, of the runs that are there.
#pragma once

#include <string>
#include <vector>

#include "study/choice.h"
#include "study/plan.h"
#include "study/record.h"

namespace sparsewire::study {

// The files have the records in plan order: pilots, tuning runs, judging runs; each by cell and seed. They do not
// depend on the order here, nor on that of finishing.
struct Results {
  const Plan& plan;
  std::vector<Record> records;
  std::vector<Choice> choices;
};

// What every summary says of its intervals.
std::string about_intervals(const Plan& plan);

// The contents of the files. No times, names of hosts or folders, except timings.csv.
std::string runs_csv(const Results& results);
std::string timings_csv(const Results& results);
Json summary_json(const Results& results);
std::string summary_markdown(const Results& results);
std::string summary_latex(const Results& results);
std::string references_bib(const Results& results);
// For a terminal: no line is longer than 80 columns.
std::string summary_text(const Results& results);

}  // namespace sparsewire::study
