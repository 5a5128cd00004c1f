// The common part of all sparsifiers that work unit by unit: small tensors that are sent densely, taking a step back,
// the norms for the statistics. A derived class only has to choose the entries of one unit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sparsewire/spec.h"
#include "sparsewire/state.h"
#include "sparsify/fused_sparsifier.h"
#include "sparsify/unit_choices.h"
#include "sparsify/unit_runner.h"
#include "sparsify/units.h"

namespace sparsewire {

class UnitSparsifier : public FusedSparsifier {
 public:
  SiftNorms sift(const kernels::ScaledGradient* gradient, float unit, ErrorMemory& memory, SparseVector& out) final;
  void undo(const kernels::ScaledGradient* gradient, ErrorMemory& memory, const SparseVector& sent) final;
  std::uint64_t step() const noexcept final { return step_; }
  void set_step(std::uint64_t step) noexcept final { step_ = step; }
  double expected_entries() const final;
  void serialize(State& state) final;

 protected:
  // Reads dense_below= from the spec.
  UnitSparsifier(Spec& spec, const SifterContext& context, Scope scope, std::uint64_t chunk = 0);

  // Adds the gradient to unit number `u` and takes entries out: those to be sent are then the candidates of the pass.
  // Returns the lowest index at which a sum is not finite; then every entry of the unit has made a round trip. THREADS:
  // several threads call it at the same time, for different units.
  virtual std::optional<std::size_t> sift_unit(std::size_t u, const Unit& unit, const kernels::ScaledGradient* gradient,
                                               UnitPass& pass) = 0;
  // How many entries of a unit that is not dense are expected to be chosen. It does not change.
  virtual double expected_in(const Unit& unit) const = 0;

  // On a device all units are sifted in one pass: choice() says what is taken out of a unit. What is to be decided
  // about these entries is decided on the host.
  virtual UnitChoice choice(const Unit& unit) const = 0;
  // What it depends on besides the unit: as long as this number stays the same, choice() is not asked again. Nothing:
  // it is asked in every step.
  virtual std::optional<double> choice_depends_on() const { return std::nullopt; }
  // Magnitudes are multiplied by it before they are compared.
  virtual float factor() const { return 1; }
  // Appends the indices of other entries that are taken out of the units, ascending. With `sends_zeros()` also those
  // that are zero.
  virtual void list_more(std::vector<std::uint32_t>& /*indices*/) {}
  virtual bool sends_zeros() const { return false; }
  // If not all that choice() gives are sent and the device may decide it. Then choice() also says how many are.
  virtual std::optional<kernels::SecondChoice> second_choice() const { return std::nullopt; }
  // If narrows(), and the device has not decided it: keeps those entries of a unit that are sent, by
  // Candidates::keep_best().
  virtual bool narrows() const { return false; }
  virtual void narrow(const Unit& /*unit*/, Candidates& /*chosen*/) {}
  // For a sparsifier of one unit: its k-th key, or 0 if it had fewer than k entries.
  virtual void set_kth(std::uint32_t /*key*/) {}

  // For a sparsifier that has state of its own besides the step number, or that describes its entries
  // (SparseVector::draw). begin() is called before the first unit of a step, with the unit of the memory; end()
  // after the last; rewind() if the step, and what followed it, is taken back after that. end() cannot fail, because
  // the memory has changed by then: what it needs is allocated by begin().
  virtual void begin(float /*unit_of_memory*/, SparseVector& /*out*/) {}
  virtual void end() noexcept {}
  virtual void rewind() {}
  virtual void serialize_more(State& /*state*/) {}

  const SifterContext& context() const noexcept { return context_; }
  const std::vector<Unit>& units() const noexcept { return units_; }
  // Entries that are not in tensors that are sent densely.
  std::size_t sparse_size() const noexcept { return sparse_size_; }
  // The entries that k= applies to: those of the whole model if the layout is a region of it.
  std::size_t model_size() const noexcept { return context_.model_dim == 0 ? sparse_size_ : context_.model_dim; }

 private:
  // unit_sparsifier_device.cc
  void make_choices();
  SiftNorms sift_on_device(const kernels::ScaledGradient* gradient, ErrorMemory& memory, SparseVector& out);
  SiftNorms collect(ErrorMemory& memory, SparseVector& out);
  std::size_t take_unit(const Unit& unit, std::size_t begin, std::size_t end, std::size_t more);

  std::string name_;
  SifterContext context_;
  std::vector<Unit> units_;
  std::size_t sparse_size_ = 0;
  std::uint64_t step_;

  UnitRunner runner_;

  // On a device.
  Candidates chosen_;
  UnitChoices choices_;
  std::optional<double> choices_depended_on_;  // when they were made
  TakenEntries taken_;
  std::vector<std::uint32_t> more_indices_;  // of list_more()
  std::vector<float> more_values_;
  Candidates more_;    // those of a unit
  SparseVector lost_;  // entries that are not sent
};

}  // namespace sparsewire
