// The numbers of an evaluation, with the names that they have in reports and metrics: train_loss, test_accuracy.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "problems/problem.h"

namespace sparsewire::train {

std::string_view name_of(Part part) noexcept;

struct Measurement {
  std::string name;
  double value = 0;
};

// Of each part that was evaluated: its loss, and the metric. Of `train` also the objective, where it is not the loss.
struct Evaluation {
  std::vector<Measurement> numbers;

  std::optional<double> find(std::string_view name) const;
};

// "test_accuracy"; empty if the problem has no metric.
std::string metric_name(const Problem& problem, Part part);

// What stands in a table that has room for one part: that of the test data, else of the validation data, else of the
// training data.
struct Headline {
  std::string loss;    // the name of its loss: "test_loss"
  std::string metric;  // the name of its metric; empty if there is none
};
Headline headline_of(const Problem& problem);

// On all data that are held back. Also on the training data, if `with_train` or nothing is held back.
Evaluation evaluate(Problem& problem, std::span<const float> weights, bool with_train);

// "test_loss" as "test loss".
std::string in_words(std::string_view name);

}  // namespace sparsewire::train
