// Every sparsifier once more, slow and obviously right: whole vectors, sorting, no state that is not in the definition.
//
// Shares nothing with src/ but the plain types of the public headers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "reference/units.h"
#include "sparsewire/sparse_vector.h"

namespace sparsewire::reference {

// What one sift did.
struct Round {
  SparseVector out;
  std::vector<float> accumulated;  // decay*memory + scale*gradient, before anything left
  double accumulated_norm2 = 0;
  double sent_norm2 = 0;
  std::vector<float> scores;  // RegTop-k's, else empty: they hold a tanh, so their last digits are a matter of taste
  std::vector<Unit> units;    // what the scores were compared within
};

// fl(fl(decay*memory) + fl(scale*gradient)).
std::vector<float> accumulated(std::span<const float> memory, std::span<const float> gradient, float scale,
                               float decay);

// Those of `among` where a is not zero.
std::vector<std::uint32_t> non_zero(const std::vector<std::uint32_t>& among, const std::vector<float>& a);

// The `count` entries of `among` with the largest score, ties to the lower index, without those where a is zero.
// In no order.
std::vector<std::uint32_t> largest(const std::vector<std::uint32_t>& among, const std::vector<float>& a,
                                   const std::vector<float>& score, std::uint64_t count);

std::vector<float> magnitudes(const std::vector<float>& a);

double norm2(std::span<const float> numbers);

class Reference {
 public:
  Reference(std::string_view spec, Setting setting);
  virtual ~Reference() = default;

  Round sift(std::span<const float> gradient, std::vector<float>& memory, float scale = 1, float decay = 1);
  virtual void observe(const SparseVector& /*sent*/, std::span<const float> /*update_at_sent*/) {}
  virtual float* vote() { return nullptr; }

 protected:
  // The entries to send, in any order. `round` holds the accumulated vector.
  virtual std::vector<std::uint32_t> choose(Round& round, float scale) = 0;

  const Keys keys_;
  const Setting setting_;
  std::uint64_t step_;  // number of the next step
};

std::unique_ptr<Reference> make_threshold(std::string_view spec, const Setting& setting);  // threshold.cc
std::unique_ptr<Reference> make_regtopk(std::string_view spec, const Setting& setting);    // regtopk.cc
std::unique_ptr<Reference> make(std::string_view spec, const Setting& setting);

}  // namespace sparsewire::reference
