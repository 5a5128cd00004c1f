// The papers of the methods that a study compares, as BibTeX.
#pragma once

#include <string>
#include <vector>

#include "study/plan.h"

namespace sparsewire::study {

struct Reference {
  std::string key;
  std::string entry;  // of a .bib file
};

// sparsewire itself, and the papers of what any cell of the plan uses.
std::vector<Reference> references(const Plan& plan);

}  // namespace sparsewire::study
