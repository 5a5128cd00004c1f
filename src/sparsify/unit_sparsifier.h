// The common part of all sparsifiers that work unit by unit: small tensors that are sent densely, taking a step back. A
// derived class only has to say, as a rule, what is sent of a unit.
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
#include "sparsify/rules.h"
#include "sparsify/unit_choices.h"
#include "sparsify/unit_runner.h"
#include "sparsify/units.h"

namespace sparsewire {

class UnitSparsifier : public FusedSparsifier {
 public:
  double sift(const kernels::ScaledGradient* gradient, float unit, ErrorMemory& memory, SparseVector& out) final;
  void undo(const kernels::ScaledGradient* gradient, ErrorMemory& memory, const SparseVector& sent) final;
  std::uint64_t step() const noexcept final { return step_; }
  void set_step(std::uint64_t step) noexcept final { step_ = step; }
  double expected_entries() const final;
  void serialize(State& state) final;

 protected:
  // Reads dense_below= from the spec.
  UnitSparsifier(Spec& spec, const SifterContext& context, Scope scope, std::uint64_t chunk = 0);

  // What is sent of a unit that is not dense.
  virtual Rule rule(const Unit& unit) const = 0;
  // What it depends on besides the unit: as long as this number stays the same, rule() is not asked again. Nothing: it
  // is asked in every step.
  virtual std::optional<double> rule_depends_on() const { return std::nullopt; }
  virtual Scores scores() const { return {}; }
  virtual DrawsFrom draws() const;
  // How many entries of a unit that is not dense are expected to be chosen. It does not change.
  virtual double expected_in(const Unit& unit) const = 0;

  // For a sparsifier that has state of its own besides the step number, or that describes its entries
  // (SparseVector::draw). begin() is called before a step, with the unit of the memory; end() after it, with the k-th
  // best key of the first unit if its rule was `best`, or 0 if it had fewer than k entries; rewind() if the step, and
  // what followed it, is taken back after that. end() cannot fail, because the memory has changed by then: what it
  // needs is allocated by begin().
  virtual void begin(float /*unit_of_memory*/, SparseVector& /*out*/) {}
  virtual void end(std::uint32_t /*kth*/) noexcept {}
  virtual void rewind() {}
  virtual void serialize_more(State& /*state*/) {}

  const SifterContext& context() const noexcept { return context_; }
  const std::vector<Unit>& units() const noexcept { return units_; }
  // Entries that are not in tensors that are sent densely.
  std::size_t sparse_size() const noexcept { return sparse_size_; }
  // The entries that k= applies to: those of the whole model if the layout is a region of it.
  std::size_t model_size() const noexcept { return context_.model_dim == 0 ? sparse_size_ : context_.model_dim; }

 private:
  void make_rules();
  // unit_sparsifier_device.cc
  void make_choices();
  void list_more();
  double sift_on_device(const kernels::ScaledGradient* gradient, ErrorMemory& memory, SparseVector& out);
  void collect(ErrorMemory& memory, SparseVector& out);
  std::size_t take_unit(const Unit& unit, std::size_t begin, std::size_t end, std::size_t more);

  std::string name_;
  SifterContext context_;
  std::vector<Unit> units_;
  std::size_t sparse_size_ = 0;
  std::uint64_t step_;

  UnitRunner runner_;
  Rules rules_;
  std::optional<double> rules_depended_on_;  // when they were made
  bool has_draws_ = false;                   // entries are drawn among all
  bool narrows_ = false;                     // not all that are taken by their magnitude are sent

  // On a device.
  Candidates chosen_;
  UnitChoices choices_;
  bool choices_are_made_ = false;  // of these rules
  TakenEntries taken_;
  std::vector<std::uint32_t> more_indices_;  // of entries that are taken whatever their magnitude
  std::vector<float> more_values_;
  Candidates more_;    // those of a unit
  SparseVector lost_;  // entries that are not sent
};

}  // namespace sparsewire
