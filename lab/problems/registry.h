// A factory for each line of problems.def, defined in the file of that name; those of deep networks in deep_images.cc
// and deep_text.cc.
#pragma once

#include <memory>

#include "problems/problem.h"
#include "sparsewire/spec.h"

namespace sparsewire::train {

#define PROBLEM(name, summary, example, takes_data, has_samples, is_deep) \
  std::unique_ptr<Problem> make_##name##_problem(Spec& spec, const ProblemPlace& place);
#include "problems/problems.def"
#undef PROBLEM

}  // namespace sparsewire::train
