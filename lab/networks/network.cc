#include "networks/network.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "sparsewire/support/portable_math.h"

namespace sparsewire::train {
namespace {

Layout layout_of(const std::vector<std::size_t>& widths) {
  std::vector<TensorRange> tensors;
  for (std::size_t layer = 0; layer + 1 < widths.size(); ++layer) {
    const std::string name = "layer" + std::to_string(layer);
    tensors.push_back({name + ".weight", widths[layer] * widths[layer + 1]});
    tensors.push_back({name + ".bias", widths[layer + 1]});
  }
  return Layout(std::move(tensors));
}

// to += factor * from. Most of the time is spent here; there is no sum, so the compiler vectorises it.
template <class T>
void add_scaled(T factor, const T* from, T* to, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) to[i] += factor * from[i];
}

// In eight partial sums: it vectorises, and the order is still fixed.
template <class T>
T dot(const T* a, const T* b, std::size_t size) {
  std::array<T, 8> sums{};
  std::size_t i = 0;
  for (; i + 8 <= size; i += 8) {
    for (std::size_t lane = 0; lane < 8; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  for (; i < size; ++i) sums[i % 8] += a[i] * b[i];
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

}  // namespace

template <class T>
Network<T>::Network(std::vector<std::size_t> widths) : widths_(std::move(widths)), layout_(layout_of(widths_)) {}

template <class T>
void Network<T>::forward(const Batch<T>& batch, std::span<const T> weights, Room& room) const {
  const std::size_t layers = widths_.size() - 1;
  const std::size_t rows = batch.classes.size();
  room.outputs.resize(layers);
  const T* in = batch.inputs.data();
  for (std::size_t layer = 0; layer < layers; ++layer) {
    const std::size_t ins = widths_[layer];
    const std::size_t outs = widths_[layer + 1];
    const T* weight = weights.data() + layout_.tensors()[2 * layer].begin;
    const T* bias = weights.data() + layout_.tensors()[2 * layer + 1].begin;
    room.outputs[layer].resize(rows * outs);
    for (std::size_t row = 0; row < rows; ++row) {
      T* out = room.outputs[layer].data() + row * outs;
      std::copy(bias, bias + outs, out);
      for (std::size_t i = 0; i < ins; ++i) add_scaled(in[row * ins + i], weight + i * outs, out, outs);
      if (layer + 1 < layers) std::transform(out, out + outs, out, [](T x) { return std::max(x, T{0}); });
    }
    in = room.outputs[layer].data();
  }
}

template <class T>
typename Network<T>::Score Network<T>::apply_softmax(const Batch<T>& batch, Room& room) const {
  Score score;
  const std::size_t outs = widths_.back();
  for (std::size_t row = 0; row < batch.classes.size(); ++row) {
    T* out = room.outputs.back().data() + row * outs;
    const T* largest = std::max_element(out, out + outs);
    if (static_cast<std::size_t>(largest - out) == batch.classes[row]) ++score.right;
    const double top = *largest;
    const double own = out[batch.classes[row]];
    double sum = 0;
    for (std::size_t i = 0; i < outs; ++i) sum += portable_exp(out[i] - top);
    for (std::size_t i = 0; i < outs; ++i) out[i] = static_cast<T>(portable_exp(out[i] - top) / sum);
    score.loss += portable_log(sum) - (own - top);
  }
  return score;
}

template <class T>
typename Network<T>::Score Network<T>::score(const Batch<T>& batch, std::span<const T> weights, Room& room) const {
  forward(batch, weights, room);
  return apply_softmax(batch, room);
}

template <class T>
double Network<T>::gradient(const Batch<T>& batch, std::span<const T> weights, std::span<T> gradient,
                            Room& room) const {
  const std::size_t rows = batch.classes.size();
  const double loss = score(batch, weights, room).loss / static_cast<double>(rows);
  std::fill(gradient.begin(), gradient.end(), T{0});
  // At the last outputs the gradient is (probability - 1) for the right class, probability for the others.
  room.delta = room.outputs.back();
  for (std::size_t row = 0; row < rows; ++row) room.delta[row * widths_.back() + batch.classes[row]] -= T{1};
  for (T& delta : room.delta) delta /= static_cast<T>(rows);
  for (std::size_t layer = widths_.size() - 1; layer-- > 0;) {
    const std::size_t ins = widths_[layer];
    const std::size_t outs = widths_[layer + 1];
    const T* in = layer == 0 ? batch.inputs.data() : room.outputs[layer - 1].data();
    const T* weight = weights.data() + layout_.tensors()[2 * layer].begin;
    T* of_weight = gradient.data() + layout_.tensors()[2 * layer].begin;
    T* of_bias = gradient.data() + layout_.tensors()[2 * layer + 1].begin;
    for (std::size_t row = 0; row < rows; ++row) add_scaled(T{1}, room.delta.data() + row * outs, of_bias, outs);
    for (std::size_t i = 0; i < ins; ++i) {
      for (std::size_t row = 0; row < rows; ++row) {
        add_scaled(in[row * ins + i], room.delta.data() + row * outs, of_weight + i * outs, outs);
      }
    }
    if (layer == 0) break;
    room.next_delta.resize(rows * ins);
    for (std::size_t row = 0; row < rows; ++row) {
      for (std::size_t i = 0; i < ins; ++i) {
        const bool is_on = in[row * ins + i] > 0;
        room.next_delta[row * ins + i] = is_on ? dot(weight + i * outs, room.delta.data() + row * outs, outs) : T{0};
      }
    }
    room.delta.swap(room.next_delta);
  }
  return loss;
}

template class Network<float>;
template class Network<double>;

}  // namespace sparsewire::train
