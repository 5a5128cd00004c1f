// A multilayer perceptron: layers of weights and biases, ReLU between them, softmax cross-entropy at the end.
//
// Numbers are T: float in training, double where a test looks closely. Sums run in one order, whatever the machine.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sparsewire/layout.h"

namespace sparsewire::train {

// Some samples to learn from: as many rows of inputs as classes.
template <class T>
struct Batch {
  std::vector<T> inputs;  // row by row
  std::vector<std::uint32_t> classes;
};

template <class T>
class Network {
 public:
  // `widths`: inputs, hidden layers, classes. REQUIRES: at least two, none is 0.
  explicit Network(std::vector<std::size_t> widths);

  // For layer l: layerl.weight (a row for each input of the layer), layerl.bias.
  const Layout& layout() const noexcept { return layout_; }
  const std::vector<std::size_t>& widths() const noexcept { return widths_; }

  // Room for what lies between the layers, for one caller at a time. Kept, so that steps do not allocate.
  struct Room {
    std::vector<std::vector<T>> outputs;  // of each layer, row by row
    std::vector<T> pull;                  // gradient of a layer's outputs
    std::vector<T> next_pull;
  };

  struct Score {
    double loss = 0;  // sum over the samples
    std::size_t right = 0;
  };

  // THREADS: any number of callers, each with a room of its own.
  Score score(const Batch<T>& batch, std::span<const T> weights, Room& room) const;
  // Returns the mean loss, and writes its gradient.
  double gradient(const Batch<T>& batch, std::span<const T> weights, std::span<T> gradient, Room& room) const;

 private:
  void forward(const Batch<T>& batch, std::span<const T> weights, Room& room) const;
  // Of the last layer's outputs, which become probabilities.
  Score soften(const Batch<T>& batch, Room& room) const;

  std::vector<std::size_t> widths_;
  Layout layout_;
};

extern template class Network<float>;
extern template class Network<double>;

}  // namespace sparsewire::train
