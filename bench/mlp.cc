// All samples of a step pass through the network together: a number of each sample in one vector. So every loop
// vectorises, no loop has a sum whose order depends on the vector length, and the weights are read once.
#include "mlp.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <span>

#include "data.h"
#include "sparsewire/sifter.h"
#include "wide.h"

namespace sparsewire::bench {
namespace {

constexpr std::size_t kWorkers = 4;
constexpr std::size_t kBatch = 8;
constexpr std::size_t kSamples = kWorkers * kBatch;
constexpr std::array<std::size_t, 5> kWidths = {784, 3328, 3328, 3328, 10};
constexpr std::size_t kLayers = kWidths.size() - 1;
constexpr std::size_t kClasses = kWidths.back();
constexpr float kLearningRate = 0.1F;

using Row = std::array<float, kSamples>;  // one number of each sample
using Rows = std::vector<Row>;

std::uint32_t hash(std::uint32_t a, std::uint32_t b, std::uint32_t c = 0) { return mix(a + mix(b + mix(c + 99))); }

// Nearly normal, with variance 1: the sum of twelve uniform numbers.
float normal(std::uint32_t key) {
  double sum = -6;
  for (std::uint32_t i = 0; i < 12; ++i) sum += uniform(mix(key + i * 0x9e3779b9U));
  return static_cast<float>(sum);
}

float between(double least, double most, std::uint32_t key) {
  return static_cast<float>(least + (most - least) * uniform(mix(key)));
}

// About exp(-x / 2): (1 - x / 32)^16.
float bell(float x) {
  float power = std::max(0.0F, 1 - x / 32);
  for (int i = 0; i < 4; ++i) power *= power;
  return power;
}

std::size_t begin_of(std::size_t layer) {
  std::size_t begin = 0;
  for (std::size_t i = 0; i < layer; ++i) begin += kWidths[i] * kWidths[i + 1];
  return begin;
}

// Uniform in +-1/sqrt(inputs of the layer).
std::vector<float> initial_weights() {
  std::vector<float> weights(begin_of(kLayers));
  for (std::size_t layer = 0; layer < kLayers; ++layer) {
    const double most = 1 / std::sqrt(static_cast<double>(kWidths[layer]));
    for (std::size_t i = begin_of(layer); i < begin_of(layer + 1); ++i) {
      weights[i] = static_cast<float>(most * (2 * uniform(mix(static_cast<std::uint32_t>(i) ^ 0x5bd1e995U)) - 1));
    }
  }
  return weights;
}

struct Samples {
  Rows inputs = Rows(kWidths.front());
  std::array<std::uint32_t, kSamples> classes{};
};

// Images of 28 x 28: each class has blobs at places of its own, which move and change their brightness from sample to
// sample. As in photographs of clothes, the border is black, and neighbours are alike.
Samples draw_samples(std::uint32_t step) {
  constexpr std::uint32_t kBlobs = 7;
  constexpr int kSide = 28;
  constexpr float kMove = 1.5F;
  Samples samples;
  for (std::uint32_t s = 0; s < kSamples; ++s) {
    const std::uint32_t which = hash(1, step, s) % kClasses;
    samples.classes[s] = which;
    std::array<float, kSide * kSide> image{};
    for (std::uint32_t blob = 0; blob < kBlobs; ++blob) {
      const std::uint32_t own = which * kBlobs + blob;
      const std::uint32_t here = s * kBlobs + blob;
      const float x = between(6, 22, hash(2, own)) + kMove * normal(hash(3, step, here));
      const float y = between(6, 22, hash(4, own)) + kMove * normal(hash(5, step, here));
      const float width = between(1.5, 4, hash(6, own));
      const float light = between(0.3, 1, hash(7, own)) * (1 + 0.3F * normal(hash(8, step, here)));
      for (int i = 0; i < kSide * kSide; ++i) {
        const float across = (static_cast<float>(i % kSide) - x) / width;
        const float down = (static_cast<float>(i / kSide) - y) / width;
        image[static_cast<std::size_t>(i)] += light * bell(across * across + down * down);
      }
    }
    for (std::uint32_t i = 0; i < image.size(); ++i) {
      const float noise = image[i] > 0.1F ? 0.05F * normal(hash(100 + i, step, s)) : 0.0F;
      samples.inputs[i][s] = std::clamp(image[i] - 0.1F + noise, 0.0F, 1.0F);
    }
  }
  return samples;
}

}  // namespace

// out[o] = sum over i of weight[i][o] * in[i]. These functions have external linkage, because their versions
// (SPARSEWIRE_WIDE) are chosen when the program starts.
SPARSEWIRE_WIDE void mlp_forward(const float* weight, const float* in, std::size_t ins, std::size_t outs, float* out) {
  std::fill(out, out + outs * kSamples, 0.0F);
  for (std::size_t i = 0; i < ins; ++i) {
    for (std::size_t o = 0; o < outs; ++o) {
      const float w = weight[i * outs + o];
      for (std::size_t s = 0; s < kSamples; ++s) out[o * kSamples + s] += w * in[i * kSamples + s];
    }
  }
}

// of_in[i] = sum over o of weight[i][o] * of_out[o].
SPARSEWIRE_WIDE void mlp_backward(const float* weight, const float* of_out, std::size_t ins, std::size_t outs,
                                  float* of_in) {
  for (std::size_t i = 0; i < ins; ++i) {
    float sums[kSamples] = {};
    for (std::size_t o = 0; o < outs; ++o) {
      const float w = weight[i * outs + o];
      for (std::size_t s = 0; s < kSamples; ++s) sums[s] += w * of_out[o * kSamples + s];
    }
    std::copy(sums, sums + kSamples, of_in + i * kSamples);
  }
}

// gradient[i][o] = sum over the batch of in[i] * of_out[o]; of_out has the samples of one worker, sample by sample.
SPARSEWIRE_WIDE void mlp_gradient(const float* in, const float* of_out, std::size_t ins, std::size_t outs,
                                  float* gradient) {
  for (std::size_t i = 0; i < ins; ++i) {
    float* const row = gradient + i * outs;
    std::fill(row, row + outs, 0.0F);
    for (std::size_t s = 0; s < kBatch; ++s) {
      const float x = in[i * kSamples + s];
      if (x == 0) continue;
      for (std::size_t o = 0; o < outs; ++o) row[o] += x * of_out[s * outs + o];
    }
  }
}

namespace {

// Replaces the outputs by the gradient of the mean loss of each worker at them.
void softmax_gradient(const Samples& samples, Rows& outputs) {
  for (std::size_t s = 0; s < kSamples; ++s) {
    double top = outputs[0][s];
    for (std::size_t c = 1; c < kClasses; ++c) top = std::max(top, double{outputs[c][s]});
    double sum = 0;
    for (std::size_t c = 0; c < kClasses; ++c) sum += std::exp(outputs[c][s] - top);
    for (std::size_t c = 0; c < kClasses; ++c) {
      const double probability = std::exp(outputs[c][s] - top) / sum;
      outputs[c][s] = static_cast<float>((probability - (c == samples.classes[s] ? 1 : 0)) / kBatch);
    }
  }
}

class Training {
 public:
  explicit Training(const std::vector<double>& ratios) : weights_(initial_weights()) {
    for (const double ratio : ratios) {
      for (std::size_t worker = 0; worker < kWorkers; ++worker) {
        sifters_.emplace_back(fmt::format("topk:ratio={}", ratio), "ef", SifterContext{.layout = weights_.size()});
      }
    }
    sent_.resize(sifters_.size());
    for (std::size_t layer = 0; layer <= kLayers; ++layer) rows_[layer].resize(kWidths[layer]);
    gradient_.resize(weights_.size());
  }

  void step(std::uint32_t number) {
    Samples samples = draw_samples(number);
    rows_[0] = std::move(samples.inputs);
    for (std::size_t layer = 0; layer < kLayers; ++layer) {
      mlp_forward(weight(layer), rows_[layer][0].data(), kWidths[layer], kWidths[layer + 1],
                  rows_[layer + 1][0].data());
      if (layer + 1 == kLayers) break;
      for (Row& row : rows_[layer + 1]) {
        for (float& x : row) x = std::max(x, 0.0F);
      }
    }
    deltas_[kLayers] = rows_[kLayers];
    softmax_gradient(samples, deltas_[kLayers]);
    for (std::size_t layer = kLayers - 1; layer > 0; --layer) {
      deltas_[layer].resize(kWidths[layer]);
      mlp_backward(weight(layer), deltas_[layer + 1][0].data(), kWidths[layer], kWidths[layer + 1],
                   deltas_[layer][0].data());
      for (std::size_t i = 0; i < kWidths[layer]; ++i) {
        for (std::size_t s = 0; s < kSamples; ++s) {
          if (rows_[layer][i][s] <= 0) deltas_[layer][i][s] = 0;
        }
      }
    }
    for (std::size_t worker = 0; worker < kWorkers; ++worker) send(worker);
    for (const SparseVector& sent : sent_by_all(0)) {
      for (std::size_t i = 0; i < sent.size(); ++i) {
        weights_[sent.indices[i]] -= kLearningRate / kWorkers * sent.values[i];
      }
    }
  }

  // What the workers sent in the last step, with ratio number r.
  std::span<const SparseVector> sent_by_all(std::size_t r) const {
    return std::span(sent_).subspan(r * kWorkers, kWorkers);
  }

  SparseVector sum(std::size_t r) const {
    std::map<std::uint32_t, float> entries;
    for (const SparseVector& sent : sent_by_all(r)) {
      for (std::size_t i = 0; i < sent.size(); ++i) entries[sent.indices[i]] += sent.values[i] * (1.0F / kWorkers);
    }
    SparseVector sum{.dim = weights_.size(), .indices = {}, .values = {}, .draw = {}};
    for (const auto& [index, value] : entries) {
      sum.indices.push_back(index);
      sum.values.push_back(value);
    }
    return sum;
  }

 private:
  const float* weight(std::size_t layer) const { return weights_.data() + begin_of(layer); }

  void send(std::size_t worker) {
    std::vector<float> of_out;
    for (std::size_t layer = 0; layer < kLayers; ++layer) {
      const Rows& deltas = deltas_[layer + 1];
      of_out.resize(kBatch * deltas.size());
      for (std::size_t s = 0; s < kBatch; ++s) {
        for (std::size_t o = 0; o < deltas.size(); ++o) of_out[s * deltas.size() + o] = deltas[o][worker * kBatch + s];
      }
      mlp_gradient(rows_[layer][0].data() + worker * kBatch, of_out.data(), kWidths[layer], kWidths[layer + 1],
                   gradient_.data() + begin_of(layer));
    }
    for (std::size_t i = worker; i < sifters_.size(); i += kWorkers) sifters_[i].sift(Gradient(gradient_), sent_[i]);
  }

  std::vector<float> weights_;
  std::vector<float> gradient_;
  std::array<Rows, kLayers + 1> rows_;    // inputs, and outputs of each layer
  std::array<Rows, kLayers + 1> deltas_;  // the gradient of the loss at them
  std::vector<Sifter> sifters_;           // of all workers for the first ratio, then for the next
  std::vector<SparseVector> sent_;
};

}  // namespace

std::vector<MlpFrames> train_mlp(const std::vector<double>& ratios, int steps,
                                 const std::function<void(int done)>& progress) {
  Training training(ratios);
  for (int step = 0; step < steps; ++step) {
    progress(step);
    training.step(static_cast<std::uint32_t>(step));
  }
  std::vector<MlpFrames> all;
  for (std::size_t r = 0; r < ratios.size(); ++r) {
    all.push_back({ratios[r], training.sent_by_all(r)[0], training.sum(r)});
  }
  return all;
}

}  // namespace sparsewire::bench
