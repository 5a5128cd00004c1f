// What a Sifter consists of: sifter.cc has the steps, sifter_velocity.cc those with momentum,
// sifter_rounding.cc what was rounded, sifter_numbers.cc access from outside; sifter_state.cc saves and loads.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/sweep.h"
#include "sparsewire/sifter.h"
#include "sparsewire/state.h"
#include "sparsewire/support/pages.h"
#include "sparsify/fused_sparsifier.h"

namespace sparsewire {

struct Sifter::Parts {
  SifterContext context;
  std::string sparsifier_spec;
  std::string feedback_spec;
  std::string name;  // of the sparsifier
  Feedback feedback;
  std::unique_ptr<FusedSparsifier> sparsifier;
  ErrorMemory memory;
  SiftStats stats;
  SiftStats stats_before;  // for undo
  bool can_undo = false;   // a step was taken, and nothing but what belongs to it came after it
  bool can_flush = false;  // nothing at all came after it
  bool is_taken = false;   // its entries are on the device, and were not returned (sift_all)
  std::vector<float> all;  // of flush(), kept so that the steady state allocates nothing

  std::vector<double> loss_of_tiles;  // of keep_rounding_loss()

  // Feedback `none` only. Its memory is zero between steps, unless numbers were put there from outside.
  bool may_hold_numbers = false;     // load() or write_memory() may have put them there; once set it stays
  std::vector<float> memory_before;  // what was there before the last step, for undo; empty: zeros

  // Momentum (DGC) only.
  ErrorMemory velocity;
  std::vector<float> cleared;  // velocities that were cleared in the last step, for undo

  bool has_velocity() const noexcept { return feedback.kind == Feedback::Kind::momentum; }
  void check_gradient(const Gradient& gradient) const;
  void move_to(Device device);
  template <class Sift>
  void take_step(SparseVector& sent, Sift sift);
  void count_step(double accumulated_norm2, double sent_norm2, std::uint64_t entries);
  double sift(const Gradient& gradient, SparseVector& sent, float lr, float unscale);
  double sift_velocity(const Gradient& gradient, SparseVector& sent, float unscale);
  double sift_total(const kernels::ScaledGradient& total, SparseVector& sent);
  double sift_without_feedback(const kernels::ScaledGradient& gradient, SparseVector& sent);
  void remember_memory();
  kernels::ScaledGradient scaled(const Gradient& gradient, float lr, float unscale) const;
  kernels::Clip clip() const noexcept;
  kernels::ScaledGradient unclipped(const Gradient& gradient, float unscale) const;
  kernels::ScaledGradient clipped(const Gradient& gradient, float unscale);
  void restore_velocity(const Gradient& gradient, float unscale);
  void begin_undo(const SparseVector& sent);
  void check(const SparseVector& entries, const char* what) const;
  double rounding_loss2(const SparseVector& sent, std::span<const float> received);
  void write(ErrorMemory& to, std::size_t begin, std::size_t size, const Gradient& numbers, const char* what);
  Layout serialize_head(State& state);
  void serialize_body(State& state, LongVector& all_memory, LongVector& all_velocity);
  void serialize_sparsifier(State& state);
  void read_body(State& state, const Layout& saved, std::span<const std::byte> before, LongVector& all_memory,
                 LongVector& all_velocity);
};

}  // namespace sparsewire
