// A second implementation of every sparsifier, slow and obviously right: it sorts whole vectors, and has no state
// besides that of the definition.
//
// It shares nothing with src/ except the plain types of the public headers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "reference/units.h"
#include "sparsewire/sparse_vector.h"

namespace sparsewire::reference {

// The result of one sift.
struct Round {
  SparseVector out;
  std::vector<float> accumulated;  // decay*memory + scale*gradient, before entries are taken out
  double accumulated_norm2 = 0;
  double sent_norm2 = 0;
  std::vector<float> scores;  // of RegTop-k, else empty; they depend on a tanh, so their last digits may differ
  std::vector<Unit> units;    // scores are compared within a unit
};

// fl(fl(decay*memory) + fl(scale*gradient)).
std::vector<float> accumulated(std::span<const float> memory, std::span<const float> gradient, float scale,
                               float decay);

// The entries of `among` at which a is not zero.
std::vector<std::uint32_t> non_zero(const std::vector<std::uint32_t>& among, const std::vector<float>& a);

// The `count` entries of `among` with the largest score, ties to the lower index, without those at which a is zero. In
// no particular order.
std::vector<std::uint32_t> largest(const std::vector<std::uint32_t>& among, const std::vector<float>& a,
                                   const std::vector<float>& score, std::uint64_t count);

std::vector<float> magnitudes(const std::vector<float>& a);

double norm2(std::span<const float> numbers);

class Reference {
 public:
  Reference(std::string_view spec, Setting setting);
  virtual ~Reference() = default;

  Round sift(std::span<const float> gradient, std::vector<float>& memory, float scale = 1, float decay = 1);
  virtual void observe(const SparseVector& /*sent*/, std::span<const float> /*update_at_sent*/,
                       std::span<const std::uint8_t> /*came_back*/ = {}) {}
  virtual float* vote() { return nullptr; }

 protected:
  // The entries to send, in any order. `round` contains the accumulated vector.
  virtual std::vector<std::uint32_t> choose(Round& round, float scale) = 0;

  const Keys keys_;
  const Setting setting_;
  std::uint64_t step_;  // number of the next step
};

std::unique_ptr<Reference> make_threshold(std::string_view spec, const Setting& setting);  // threshold.cc
std::unique_ptr<Reference> make_regtopk(std::string_view spec, const Setting& setting);    // regtopk.cc
std::unique_ptr<Reference> make(std::string_view spec, const Setting& setting);

}  // namespace sparsewire::reference
