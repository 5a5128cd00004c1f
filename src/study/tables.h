// The files of a finished study, and the table that is printed.
#pragma once

#include <string>
#include <vector>

#include "study/choice.h"
#include "study/plan.h"
#include "study/record.h"

namespace sparsewire::study {

// All in plan order: pilots, probes, tuning runs, judging runs. They do not depend on the order of finishing.
struct Results {
  const Plan& plan;
  std::vector<Record> records;
  std::vector<Choice> choices;
};

// The contents of the files. No times, names of hosts or folders, except timings.csv.
std::string runs_csv(const Results& results);
std::string timings_csv(const Results& results);
Json summary_json(const Results& results);
std::string summary_markdown(const Results& results);
// For a terminal: no line is longer than 80 columns.
std::string summary_text(const Results& results);

}  // namespace sparsewire::study
