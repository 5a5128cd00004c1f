// A Sifter with momentum, as Deep Gradient Compression has it (Lin et al., 2018): gradients are clipped and added to a
// velocity, and the velocity to the memory.
#include <cmath>

#include "sparsify/bad_gradient.h"
#include "sparsify/sifter_parts.h"

namespace sparsewire {

// DGC's local clipping: the norm of this worker's gradient is cut to clip/sqrt(ranks), so that the sum over the workers
// keeps to about clip.
kernels::Clip Sifter::Parts::clip() const noexcept {
  return {feedback.clip / std::sqrt(static_cast<double>(context.ranks))};
}

// The same for a velocity, before it is clipped, and after.
kernels::ScaledGradient Sifter::Parts::unclipped(const Gradient& gradient, float unscale) const {
  kernels::ScaledGradient result = scaled(gradient, 1.0F, unscale);
  result.decay = feedback.momentum;
  return result;
}
kernels::ScaledGradient Sifter::Parts::clipped(const Gradient& gradient, float unscale) {
  kernels::ScaledGradient result = unclipped(gradient, unscale);
  if (feedback.clip != 0) result.scale = clip().scale_of(std::sqrt(velocity.norm2(gradient)), result.scale);
  return result;
}

// A step of DGC: velocity <- m*velocity + gradient; the velocity is sifted, and cleared where an entry is sent.
double Sifter::Parts::sift_velocity(const Gradient& gradient, SparseVector& sent, float unscale) {
  // On a device the pass over the memory adds it, too: so the velocity is read once, and the host need not know the
  // norm. But a bad gradient would be found too late, so it does that only if the norm shows that there is none.
  if (velocity.is_on_device() && feedback.clip != 0) {
    kernels::FirstAdd first{unclipped(gradient, unscale), clip()};
    kernels::ScaledGradient total = velocity.as_gradient();
    total.first_add = &first;
    try {
      return sift_total(total, sent);
    } catch (const MayOverflow&) {
    } catch (...) {
      if (first.is_added) restore_velocity(gradient, unscale);
      throw;
    }
  }
  const kernels::ScaledGradient addend = clipped(gradient, unscale);
  if (const auto bad = velocity.accumulate(&addend)) {
    throw_bad_gradient(name, context, stats.step, addend, velocity, *bad);
  }
  try {
    return sift_total(velocity.as_gradient(), sent);
  } catch (...) {
    velocity.restore(&addend);
    throw;
  }
}

double Sifter::Parts::sift_total(const kernels::ScaledGradient& total, SparseVector& sent) {
  const double accumulated_norm2 = sparsifier->sift(&total, 1, memory, sent);
  try {
    velocity.clear_at(sent, cleared);
  } catch (...) {
    sparsifier->undo(&total, memory, sent);
    throw;
  }
  return accumulated_norm2;
}

void Sifter::Parts::restore_velocity(const Gradient& gradient, float unscale) {
  const kernels::ScaledGradient addend = clipped(gradient, unscale);
  velocity.restore(&addend);
}

}  // namespace sparsewire
