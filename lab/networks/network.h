// A multilayer perceptron: layers of weights and biases, ReLU between them, softmax cross-entropy at the end.
//
// Numbers are of type T: float in training, double where a test compares closely. Sums have the same order on
// every machine.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sparsewire/layout.h"

namespace sparsewire::train {

// Samples: as many rows of inputs as classes.
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

  // Layer 0 has the tensors layer0.weight (a row for each input of the layer) and layer0.bias, and so on.
  const Layout& layout() const noexcept { return layout_; }
  const std::vector<std::size_t>& widths() const noexcept { return widths_; }

  // Storage for the layers' outputs, for one caller at a time. It is kept, so that steps do not allocate.
  struct Room {
    std::vector<std::vector<T>> outputs;  // of each layer, row by row
    std::vector<T> delta;                 // gradient of the loss at a layer's outputs
    std::vector<T> next_delta;
  };

  struct Score {
    double loss = 0;        // sum over the samples
    std::size_t right = 0;  // samples classified correctly
  };

  // THREADS: any number of callers, each with its own Room.
  Score score(const Batch<T>& batch, std::span<const T> weights, Room& room) const;
  // Returns the mean loss, and writes its gradient.
  double gradient(const Batch<T>& batch, std::span<const T> weights, std::span<T> gradient, Room& room) const;

 private:
  void forward(const Batch<T>& batch, std::span<const T> weights, Room& room) const;
  // The score of the last layer's outputs, which are replaced by their softmax.
  Score apply_softmax(const Batch<T>& batch, Room& room) const;

  std::vector<std::size_t> widths_;
  Layout layout_;
};

extern template class Network<float>;
extern template class Network<double>;

}  // namespace sparsewire::train
