// A factory for each line of problems.def, defined in the file of that name, and those of networks (networks.def).
#pragma once

#include <memory>

#include "networks/model.h"
#include "problems/problem.h"
#include "sparsewire/spec.h"

namespace sparsewire::train {

#define PROBLEM(name, summary, example, takes_data, has_samples) \
  std::unique_ptr<Problem> make_##name##_problem(Spec& spec, const ProblemPlace& place);
#include "problems/problems.def"
#undef PROBLEM

// In deep_images.cc and deep_text.cc.
std::unique_ptr<Problem> make_images_problem(const NetworkInfo& network, Spec& spec, const ProblemPlace& place);
std::unique_ptr<Problem> make_text_problem(const NetworkInfo& network, Spec& spec, const ProblemPlace& place);

}  // namespace sparsewire::train
