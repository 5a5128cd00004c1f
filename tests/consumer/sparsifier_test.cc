// A sparsifier of one's own, and the tests that every sparsifier has to pass.
#include <sparsewire/testing/sparsifier_conformance.h>

#include "steady_threshold.h"

namespace {

const sparsewire::Registration registration = register_steady_threshold();

}  // namespace

namespace sparsewire::conformance {

INSTANTIATE_TEST_SUITE_P(SteadyThreshold, SparsifierConformance,
                         testing::Values(SparsifierCase{.spec = "steady_threshold:ratio=0.01"},
                                         SparsifierCase{.spec = "steady_threshold:ratio=0.3"}),
                         name_of_case);

}  // namespace sparsewire::conformance
