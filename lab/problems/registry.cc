#include "problems/registry.h"

#include <fmt/core.h>

#include <iterator>
#include <utility>

#include "data/data_sets.h"
#include "problems/star.h"
#include "text/names.h"

namespace sparsewire::train {
namespace {

constexpr ProblemInfo kInfos[] = {
#define PROBLEM(name, summary, example, takes_data, has_samples) {#name, summary, example, takes_data, has_samples},
#include "problems/problems.def"
#undef PROBLEM
#define NETWORK(name, summary, example, ...) {#name, summary, example, false, /*has_samples=*/true, /*is_deep=*/true},
#include "networks/networks.def"
#undef NETWORK
};

using Make = std::unique_ptr<Problem> (*)(Spec& spec, const ProblemPlace& place);

constexpr Make kMakers[] = {
#define PROBLEM(name, summary, example, takes_data, has_samples) make_##name##_problem,
#include "problems/problems.def"
#undef PROBLEM
};

std::unique_ptr<Problem> make(std::size_t number, Spec& spec, const ProblemPlace& place) {
  if (!kInfos[number].is_deep) return kMakers[number](spec, place);
  const NetworkInfo& network = networks()[number - std::size(kMakers)];
  const bool is_text = data_set_info(network.data_set).text != nullptr;
  return is_text ? make_text_problem(network, spec, place) : make_images_problem(network, spec, place);
}

}  // namespace

std::span<const ProblemInfo> problems() noexcept { return kInfos; }

std::unique_ptr<Problem> make_problem(std::string_view spec_text, const ProblemPlace& place) {
  Spec spec(spec_text);
  const std::size_t number = find_by_name(kInfos, spec.name(), "a problem");
  if (kInfos[number].is_deep && !(place.data.empty() && place.test_data.empty())) {
    spec.fail("trains with a data set of --data-dir: leave --data and --test-data out");
  }
  if (!kInfos[number].takes_data && !place.data.empty()) {
    spec.fail(fmt::format("takes no data: leave --data '{}' out, or give --problem logreg", place.data));
  }
  if (!place.test_data.empty() && place.data.empty()) {
    spec.fail(kInfos[number].takes_data ? "--test-data needs --data" : "takes no data: leave --test-data out");
  }
  if (place.validation != 0 && !kInfos[number].has_samples) {
    spec.fail("has no samples that could be held back: leave --validation out");
  }
  if (!place.split.empty() && !kInfos[number].has_samples) {
    spec.fail("has the data of each worker by definition: leave --split out");
  }
  if (place.device != "cpu" && !kInfos[number].is_deep) {
    spec.fail(fmt::format("computes on the processor: leave --device {} out", place.device));
  }
  if (!place.data_dir.empty() && !kInfos[number].is_deep) {
    spec.fail(fmt::format("uses no data set: leave --data-dir '{}' out", place.data_dir));
  }
  const bool is_star = !kInfos[number].is_deep && spec.flag("star", false);
  auto problem = make(number, spec, place);
  spec.finish();
  return is_star ? make_star(std::move(problem), place.workers) : std::move(problem);
}

}  // namespace sparsewire::train
