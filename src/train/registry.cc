#include "train/registry.h"

#include <string>

#include "core/text.h"
#include "sparsewire/errors.h"

namespace sparsewire::train {
namespace {

constexpr ProblemInfo kInfos[] = {
#define PROBLEM(name, summary, example, takes_data) {#name, summary, example, takes_data},
#include "train/problems.def"
#undef PROBLEM
};

using Make = std::unique_ptr<Problem> (*)(Spec& spec, const ProblemPlace& place);

constexpr Make kMakers[] = {
#define PROBLEM(name, summary, example, takes_data) make_##name##_problem,
#include "train/problems.def"
#undef PROBLEM
};

}  // namespace

std::span<const ProblemInfo> problems() noexcept { return kInfos; }

std::unique_ptr<Problem> make_problem(std::string_view spec_text, const ProblemPlace& place) {
  Spec spec(spec_text);
  std::string names;
  for (std::size_t i = 0; i < std::size(kInfos); ++i) {
    if (kInfos[i].name == spec.name()) {
      if (!kInfos[i].takes_data && !place.data.empty())
        spec.fail(text("takes no data, but is given '", place.data, "'"));
      auto problem = kMakers[i](spec, place);
      spec.finish();
      return problem;
    }
    names += text(names.empty() ? "" : ", ", kInfos[i].name);
  }
  throw UsageError(text("'", spec.name(), "' is not a problem; there are ", names));
}

}  // namespace sparsewire::train
