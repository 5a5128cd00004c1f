// One step of an optimiser for one entry: the processor and a GPU compute it with the same bits.
#pragma once

#include <cmath>
#include <cstdint>

// Of a function that nvcc compiles for both.
#ifdef __CUDACC__
#define SPARSEWIRE_HOST_AND_DEVICE __host__ __device__
#else
#define SPARSEWIRE_HOST_AND_DEVICE
#endif

namespace sparsewire::train {

// What all entries of a step have in common.
struct OptimiserStep {
  enum class Kind : std::uint8_t { plain, momentum, adam };  // plain: SGD without momentum
  Kind kind = Kind::plain;
  double rate = 1;          // of the update, or of what momentum or Adam make of it
  double weight_decay = 0;  // plain: lr * weight_decay; else what enters the gradient
  double momentum = 0;      // with `momentum`
  bool nesterov = false;
  double beta1 = 0;  // with `adam`, as the following ones
  double beta2 = 0;
  double unbias2 = 1;
  double epsilon = 0;
  double shrink = 1;  // of the weight

  // Whether an entry without an update stays as it is.
  bool is_sparse() const noexcept { return kind == Kind::plain && weight_decay == 0; }
};

// Numbers are computed in double; each that is kept is rounded once. `first` and `second`: what the optimiser keeps of
// the entry (velocity; mean and square); null where it keeps nothing.
template <OptimiserStep::Kind kKind>
SPARSEWIRE_HOST_AND_DEVICE inline void apply_step(const OptimiserStep& step, float update, float& kept, float* first,
                                                  float* second) {
  const double weight = kept;
  if constexpr (kKind == OptimiserStep::Kind::plain) {
    kept = static_cast<float>(weight - (step.rate * update + step.weight_decay * weight));
  } else if constexpr (kKind == OptimiserStep::Kind::momentum) {
    const double gradient = update + step.weight_decay * weight;
    *first = static_cast<float>(step.momentum * *first + gradient);
    const double direction = step.nesterov ? gradient + step.momentum * *first : *first;
    kept = static_cast<float>(weight - step.rate * direction);
  } else {
    const double gradient = update + step.weight_decay * weight;
    *first = static_cast<float>(step.beta1 * *first + (1 - step.beta1) * gradient);
    *second = static_cast<float>(step.beta2 * *second + (1 - step.beta2) * gradient * gradient);
    const double scale = std::sqrt(static_cast<double>(*second)) / step.unbias2 + step.epsilon;
    kept = static_cast<float>(step.shrink * weight - step.rate * *first / scale);
  }
}

// Calls apply.template operator()<kind>().
template <class Apply>
void with_kind(OptimiserStep::Kind kind, Apply apply) {
  switch (kind) {
    case OptimiserStep::Kind::plain:
      return apply.template operator()<OptimiserStep::Kind::plain>();
    case OptimiserStep::Kind::momentum:
      return apply.template operator()<OptimiserStep::Kind::momentum>();
    case OptimiserStep::Kind::adam:
      return apply.template operator()<OptimiserStep::Kind::adam>();
  }
}

}  // namespace sparsewire::train
