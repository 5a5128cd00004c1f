#include "loop/evaluation.h"

#include <fmt/core.h>

#include <algorithm>

namespace sparsewire::train {
namespace {

std::string loss_name(Part part) { return fmt::format("{}_loss", name_of(part)); }

bool has_held_back(const Problem& problem) { return problem.has(Part::validation) || problem.has(Part::test); }

}  // namespace

std::string_view name_of(Part part) noexcept {
  switch (part) {
    case Part::train:
      return "train";
    case Part::validation:
      return "validation";
    default:
      return "test";
  }
}

std::optional<double> Evaluation::find(std::string_view name) const {
  const auto found = std::find_if(numbers.begin(), numbers.end(), [&](const auto& one) { return one.name == name; });
  return found == numbers.end() ? std::nullopt : std::optional(found->value);
}

std::string metric_name(const Problem& problem, Part part) {
  if (problem.metric().empty()) return {};
  return problem.is_metric_of_samples() ? fmt::format("{}_{}", name_of(part), problem.metric())
                                        : std::string(problem.metric());
}

Headline headline_of(const Problem& problem) {
  const Part part = problem.has(Part::test)         ? Part::test
                    : problem.has(Part::validation) ? Part::validation
                                                    : Part::train;
  return {.loss = loss_name(part), .metric = metric_name(problem, part)};
}

Evaluation evaluate(Problem& problem, std::span<const float> weights, bool with_train) {
  Evaluation evaluation;
  const auto add = [&](const std::string& name, double value) {
    if (!name.empty() && !evaluation.find(name)) evaluation.numbers.push_back({name, value});
  };
  for (const Part part : kParts) {
    if (!problem.has(part) || (part == Part::train && !with_train && has_held_back(problem))) continue;
    const Score score = problem.evaluate(part, weights);
    add(loss_name(part), score.loss);
    if (part == Part::train && problem.has_penalty()) add("train_objective", score.objective);
    add(metric_name(problem, part), score.metric);
  }
  return evaluation;
}

std::string in_words(std::string_view name) {
  std::string words(name);
  std::replace(words.begin(), words.end(), '_', ' ');
  return words;
}

}  // namespace sparsewire::train
