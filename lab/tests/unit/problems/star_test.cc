// star=true: the gradients of EF-GD*.
#include "problems/star.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "problems/linreg.h"
#include "problems/logreg.h"
#include "sparsewire/errors.h"

namespace sparsewire::train::star_test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(Star, SubtractsTheGradientAtTheOptimum) {
  for (const std::string spec :
       {"logreg:dim=20,samples=60,batch=0", "logreg:dim=20,samples=60,batch=3", "linreg:dim=20,samples=40"}) {
    SCOPED_TRACE(spec);
    const ProblemPlace place{.workers = 3, .seed = 5, .data = {}};
    const auto plain = make_problem(spec, place);
    const auto star = make_problem(spec + ",star=true", place);
    auto& precise = dynamic_cast<PreciseProblem&>(*star);
    auto& original = dynamic_cast<PreciseProblem&>(*plain);
    std::vector<double> optimum;
    if (const auto* linreg = dynamic_cast<const Linreg*>(plain.get())) {
      optimum.assign(linreg->optimum().begin(), linreg->optimum().end());
    } else {
      optimum = dynamic_cast<const Logreg&>(*plain).optimum().weights;
    }
    std::vector<double> weights(optimum.size());
    original.initial_weights_at(weights);
    std::vector<double> here(weights.size());
    std::vector<double> there(weights.size());
    std::vector<double> starred(weights.size());
    for (int worker = 0; worker < 3; ++worker) {
      for (const std::uint64_t step : {0U, 7U}) {
        const double loss = original.gradient_at(worker, step, weights, here);
        original.gradient_at(worker, step, optimum, there);
        EXPECT_EQ(precise.gradient_at(worker, step, weights, starred), loss);
        for (std::size_t i = 0; i < weights.size(); ++i) EXPECT_EQ(starred[i], here[i] - there[i]);
        precise.gradient_at(worker, step, optimum, starred);
        for (const double g : starred) EXPECT_EQ(g, 0);
      }
    }
    EXPECT_EQ(star->metric(), plain->metric());
    EXPECT_EQ(precise.evaluate_at(weights).loss, original.evaluate_at(weights).loss);
  }
}

TEST(Star, IsRefusedWhereTheOptimumIsNotKnown) {
  EXPECT_THAT([] { make_problem("mlp:inputs=4,hidden=3,classes=2,star=true", {.workers = 1, .seed = 0, .data = {}}); },
              ThrowsMessage<UsageError>(HasSubstr("linreg, or logreg with two labels")));
}

}  // namespace
}  // namespace sparsewire::train::star_test
