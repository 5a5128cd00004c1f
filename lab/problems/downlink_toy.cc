// f_i(w) = 1/2 ||w - a_i*1||^2 with a = 1, 5, 10 (and repeated): every worker has another minimum, so what they send
// partly cancels.
//
// Zou, De Sterck, Liu, 2022: 3 workers; 100 weights, which start at 20 + N(0, 1).
#include <array>

#include "data/random.h"
#include "problems/precise_problem.h"
#include "problems/registry.h"

namespace sparsewire::train {
namespace {

constexpr std::array<double, 3> kCentres{1, 5, 10};

class DownlinkToy final : public PreciseProblem {
 public:
  DownlinkToy(std::uint64_t dim, const ProblemPlace& place)
      : PreciseProblem(place.workers), layout_(dim), workers_(place.workers), seed_(place.seed) {}

  const Layout& layout() const noexcept override { return layout_; }
  std::string_view metric() const noexcept override { return {}; }

  void initial_weights_at(std::span<double> weights) const override {
    Draws draws(seed_, Use::weights);
    for (double& weight : weights) weight = 20 + draws.normal();
  }

  double gradient_at(int worker, std::uint64_t /*step*/, std::span<const double> weights,
                     std::span<double> gradient) override {
    for (std::size_t i = 0; i < weights.size(); ++i) gradient[i] = weights[i] - centre(worker);
    return loss(worker, weights);
  }

  using PreciseProblem::evaluate_at;
  Score evaluate_at(Part /*part*/, std::span<const double> weights) override {
    double sum = 0;
    for (int worker = 0; worker < workers_; ++worker) sum += loss(worker, weights);
    return {.loss = sum / workers_, .objective = sum / workers_};
  }

 private:
  static double centre(int worker) { return kCentres[static_cast<std::size_t>(worker) % kCentres.size()]; }

  static double loss(int worker, std::span<const double> weights) {
    double sum = 0;
    for (const double weight : weights) sum += (weight - centre(worker)) * (weight - centre(worker));
    return sum / 2;
  }

  Layout layout_;
  int workers_;
  std::uint64_t seed_;
};

}  // namespace

std::unique_ptr<Problem> make_downlink_toy_problem(Spec& spec, const ProblemPlace& place) {
  const std::uint64_t dim = spec.integer("dim", 1, std::uint64_t{1} << 31).value_or(100);
  return std::make_unique<DownlinkToy>(dim, place);
}

}  // namespace sparsewire::train
