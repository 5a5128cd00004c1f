// A sparsifier with its memory: what a worker holds for its uplink, and a server for its downlink.
//
//   Sifter sifter("topk:ratio=0.01", "ef", {.layout = 25'000'000});
//   sifter.sift(gradient, sent);          // sent: 250,000 entries; the rest waits in sifter.memory()
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
//   ef:decay=0.95,scale=lr     they wait in the memory, which fades by `decay` a step (default 1); scale=lr: the memory
//                              holds lr*gradient (then w -= update), default scale=1: it holds the gradient
//   none                       they are dropped
//   momentum:m=0.9,clip=1      DGC's correction: the memory collects a velocity, cleared where an entry is sent; clip:
//                              the local gradient's norm is cut to clip/sqrt(ranks), off by default
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

// What one step did.
struct SiftStats {
  std::uint64_t step = 0;     // steps done, this one included
  std::uint64_t entries = 0;  // sent in this step
  double sent_norm2 = 0;      // ||sent||^2
  double memory_norm2 = 0;    // ||what was not sent||^2
  double total_error = 0;     // sum of memory_norm2 over all steps: what a threshold minimises under a budget
};

// THREADS: one caller at a time.
class Sifter {
 public:
  // Throws UsageError.
  Sifter(std::string_view sparsifier, std::string_view feedback, SifterContext context);
  ~Sifter();
  Sifter(Sifter&&) noexcept;
  Sifter& operator=(Sifter&&) noexcept;

  // One step of error feedback: `sent` becomes what is worth sending, the rest stays. `lr` counts with scale=lr only.
  // `gradient.scale` and `.decay` are ignored: the feedback decides. Throws UsageError, BadGradient: then the step does
  // not count, the memory is as it was, to rounding, and `sent` is empty.
  void sift(Gradient gradient, SparseVector& sent, float lr = 1.0F);

  // Takes the last sift back, to rounding: for a step that failed on another rank.
  // REQUIRES: the same gradient and lr, `sent` as sift gave it; nothing else in between.
  void undo(Gradient gradient, const SparseVector& sent, float lr = 1.0F);

  // Sends everything after all: `sent` becomes full, and the memory empty (with feedback `none` the rest is dropped, so
  // zeros are sent for it). For a step whose message would otherwise be longer than that. REQUIRES: directly after
  // sift(), with its `sent`; undo() then takes both back.
  void flush(SparseVector& sent);

  // What a codec's rounding took: memory += sent - received, where `received` are the values of the same entries as the
  // other side decodes them. With f32 values nothing. With feedback `none` it is dropped like everything else.
  void keep_rounding_loss(const SparseVector& sent, std::span<const float> received);

  // Whether memory() and the number of the step are all that decides later steps. If not (RegTop-k's last round, a
  // threshold still to be measured, a velocity), only save() keeps it.
  bool is_all_in_memory() const noexcept;

  // See Sparsifier.
  std::uint64_t step() const noexcept;
  void observe(const SparseVector& sent, std::span<const float> update_at_sent);
  double expected_entries() const;  // at most those of the layout
  bool is_voting() const noexcept;
  std::optional<float> vote() const noexcept;
  void set_vote(float agreed);

  const Layout& layout() const noexcept;
  const SiftStats& stats() const noexcept;

  // What was not sent yet.
  std::span<float> memory() noexcept;
  std::span<const float> memory() const noexcept;
  // The part of one tensor. Throws UsageError if there is none of that name.
  std::span<float> memory(std::string_view tensor);
  // DGC's velocity; empty unless the feedback is `momentum`.
  std::span<float> velocity() noexcept;

  // Everything that decides later steps, in a versioned, checksummed form: docs/state_format.md.
  std::vector<std::byte> save() const;
  // Goes on where save() left off, bit for bit, in the same SifterContext (which is not saved). The tensors may come in
  // another order, and may be some of those saved: they are found by name. Throws UsageError if the bytes are broken,
  // or were saved under other specs; then nothing has changed. (Who wants to go on under another spec copies memory()
  // by hand.)
  void load(std::span<const std::byte> bytes);
  // Takes over what does not belong to entries from a state of a sifter with other entries: the number of the step, a
  // measured threshold, the statistics. RegTop-k's last round is dropped. The memory and velocity stay. Throws
  // UsageError as load() does.
  void inherit(std::span<const std::byte> bytes);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace sparsewire
