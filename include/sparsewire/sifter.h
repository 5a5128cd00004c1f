// A sparsifier together with its error memory. A worker has one for its uplink, a server has one for its downlink.
//
//   Sifter sifter("topk:ratio=0.01", "ef", {.layout = 25'000'000});
//   sifter.sift(gradient, sent);          // sent: 250,000 entries; the rest stays in the error memory
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sparsewire/gradient.h"
#include "sparsewire/layout.h"
#include "sparsewire/sparse_vector.h"
#include "sparsewire/sparsifier.h"

namespace sparsewire {

// What happens to the entries that are not sent.
//
//   ef:decay=0.95,scale=lr     error feedback: they stay in the memory, which is multiplied by `decay` in every step
//                              (default 1). scale=lr: the memory holds lr*gradient, and the caller applies w -= update;
//                              scale=1 (default): it holds the gradient. A threshold's lambda is in units of the
//                              gradient either way
//   none                       they are dropped
//   momentum:m=0.9,clip=1      DGC's momentum correction: the memory accumulates a velocity, which is cleared where an
//                              entry is sent. clip: the norm of the local gradient is limited to clip/sqrt(ranks);
//                              off by default
struct Feedback {
  enum class Kind : std::uint8_t { ef, none, momentum };
  Kind kind = Kind::ef;
  float decay = 1.0F;
  bool scale_by_lr = false;
  float momentum = 0.9F;
  float clip = 0.0F;  // 0: off
};

// Throws UsageError.
Feedback parse_feedback(std::string_view spec);

// Statistics of one step.
struct SiftStats {
  std::uint64_t step = 0;     // steps done, including this one
  std::uint64_t entries = 0;  // sent in this step
  double sent_norm2 = 0;      // ||sent||^2
  // ||what was not sent||^2, up to 1e-15 of the norm before sending; with what keep_rounding_loss() was told.
  double memory_norm2 = 0;
  // The sum of memory_norm2 over all steps. Of all ways to send as many entries in total, a threshold minimises it.
  double total_error = 0;
};

// THREADS: one caller at a time.
class Sifter {
 public:
  // Throws UsageError.
  Sifter(std::string_view sparsifier, std::string_view feedback, SifterContext context);
  ~Sifter();
  Sifter(Sifter&&) noexcept;
  Sifter& operator=(Sifter&&) noexcept;

  // One step, on the device where the gradient is: adds the gradient to the memory, moves the chosen entries to `sent`
  // and keeps the rest. `lr` is used with scale=lr only. The gradient is multiplied by `unscale` in the same pass: for
  // a loss that was scaled up. Throws UsageError or BadGradient; then the step does not count, the memory is as it was,
  // up to rounding (errors.h), and `sent` is empty.
  void sift(const Gradient& gradient, SparseVector& sent, float lr = 1.0F, float unscale = 1.0F);
  // The same for a step that sends all entries, on a device: they stay there. Returns where they are,
  // until the next step; nothing if the sparsifier does not send all entries, the gradient is on the host, or the
  // feedback is not `ef`: then no step is taken, but the last one can no longer be undone. For undo(), `sent` is empty.
  std::optional<Gradient> sift_all(const Gradient& gradient, float lr = 1.0F, float unscale = 1.0F);
  // The same as the first for a sum of sparse vectors. `lr` is what the gradients in the sum were multiplied by: the
  // learning rate if the workers' memories hold lr*gradient, else 1. The sum is not multiplied by it; a threshold is.
  // COST: one pass over the memory, which reads it. Throws UsageError unless the feedback is `none`, or `ef` with
  // decay 1.
  void sift(const SparseVector& sum, SparseVector& sent, float lr = 1.0F);

  // Takes the last sift() back, with everything that followed it: flush(), keep_rounding_loss(), observe(), set_vote().
  // For a step that failed on another rank, or does not count for another reason. A gradient is taken back up to
  // rounding, with bits that depend on memory, gradient and factors alone; a sparse sum exactly.
  // REQUIRES: the same arguments; `sent` as sift() or flush() returned it; empty after sift_all().
  void undo(const Gradient& gradient, const SparseVector& sent, float lr = 1.0F, float unscale = 1.0F);
  void undo(const SparseVector& sum, const SparseVector& sent);
  // Whether there is a step to take back.
  bool can_undo() const noexcept;

  // Sends all entries instead of the chosen ones: `sent` becomes a full vector, and the memory becomes zero. (With
  // feedback `none` the entries that were not chosen are already dropped: zeros are sent for them.) For a step whose
  // sparse message would be longer than the full vector. REQUIRES: called directly after sift(), with its `sent`.
  void flush(SparseVector& sent);

  // Puts the rounding error of a codec back into the memory: memory += sent - received, where `received` holds the
  // values of the same entries as the other side decodes them. With f32 values the error is zero. With feedback `none`
  // it is dropped, like every entry that is not sent. Once after each sift() that was sent: it counts for memory_norm2.
  void keep_rounding_loss(const SparseVector& sent, std::span<const float> received);

  // Whether later steps depend only on the memory and the step number. If they depend on more (RegTop-k's last round, a
  // threshold that is still to be measured, a velocity), only save() preserves it.
  bool is_all_in_memory() const;

  // Where the memory is: first as the context says, and after a sift() where its gradient was. COST of a move: copies
  // it.
  Device device() const noexcept;
  // Moves it. A sparse sum is sifted wherever it is. The last step can no longer be taken back. Throws UsageError if
  // this build or this machine has no such device.
  void move_to(Device device);

  // As in Sparsifier.
  SparsifierTraits traits() const;
  std::uint64_t step() const noexcept;  // the number of the next step
  void set_step(std::uint64_t step) noexcept;
  // `came_back`: for each entry of `sent` 1 if it is in the update, 0 if a downlink withheld it; empty: all are. Used
  // by regtopk:withheld=unknown.
  void observe(const SparseVector& sent, std::span<const float> update_at_sent,
               std::span<const std::uint8_t> came_back = {});
  double expected_entries() const;  // at most those of the layout
  bool is_voting() const noexcept;
  std::optional<float> vote() const noexcept;
  void set_vote(float agreed);

  // The lambda of a `threshold`, given or measured, in units of the gradient. Nothing for other sparsifiers, and while
  // it is being measured.
  std::optional<double> threshold() const noexcept;

  const Layout& layout() const noexcept;
  const Feedback& feedback() const noexcept;
  const SiftStats& stats() const noexcept;

  // The error memory: what was not sent yet, one number for each entry of the model. A copy.
  std::vector<float> memory() const;
  // DGC's velocity; empty unless the feedback is `momentum`. A copy.
  std::vector<float> velocity() const;
  // Copies one tensor's memory out, or new numbers in. Throws UsageError if no tensor has that name, a size differs, or
  // a number is not finite; then nothing has changed.
  void read_memory(std::string_view tensor, WritableNumbers numbers) const;
  void write_memory(std::string_view tensor, const Gradient& numbers);
  // The same for all entries at once.
  void write_memory(const Gradient& numbers);
  void write_velocity(const Gradient& numbers);
  // The total error of the steps before, where a Sifter continues what several others did.
  void write_total_error(double total_error);

  // Continues what another Sifter of the same layout did, under other specs: takes over its memory, velocity, step
  // number and statistics, and what its sparsifier has learnt if that suits the new spec: a threshold with the same
  // rule=, ratio=, calibrate= and dense_below= is kept, also a calibration that is not finished; RegTop-k's last round
  // is kept under any keys. Throws UsageError if the layouts or the kinds of feedback differ.
  void continue_from(const Sifter& other);
  // Replaces what the sparsifier has learnt by what those of others have; nothing else changes. Threshold: the mean of
  // the thresholds that were measured, weighted by entries. It is measured again if one of the others has not finished
  // that, or has another ratio= or calibrate=; rule=sqrt is applied again. RegTop-k: the last round at the moved
  // entries, of those whose weights are the same.
  void learn_from(std::span<const Predecessor<Sifter>> others);

  // Everything that later steps depend on, in a versioned format with a checksum: docs/reference/state_format.md.
  std::vector<std::byte> save() const;
  // Continues where save() left off, with the same bits, in the same SifterContext (which is not saved). The tensors
  // may be in another order, and may be a subset of those saved: they are found by name. Throws UsageError if the bytes
  // are broken, or were saved under other specs; then nothing has changed. (To continue under another spec:
  // continue_from().)
  void load(std::span<const std::byte> bytes);
  // Reads only the parts of a state that do not belong to single entries, from a Sifter that had other entries: the
  // step number, a measured threshold, the statistics. RegTop-k's last round is dropped. Memory and velocity do not
  // change. Throws UsageError as load() does.
  void inherit(std::span<const std::byte> bytes);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace sparsewire
