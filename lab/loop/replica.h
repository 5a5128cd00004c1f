// One worker's copy of what is trained: its weights, its gradient, and the optimiser. They are on the host, or on the
// device where the problem computes; then only the entries that are sent, and what the caller asks for, cross the bus.
// Both have the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "loop/optimiser.h"
#include "problems/problem.h"
#include "sparsewire/gradient.h"
#include "sparsewire/worker.h"

namespace sparsewire::train {

// Which of a replica's optimisers: the one that follows gradients, or that of the exchanges between local steps.
enum class Optimises : std::uint8_t { gradients, exchanges };

class Replica {
 public:
  virtual ~Replica() = default;

  virtual void set_weights(std::span<const float> weights) = 0;
  // On the host, until they change. COST: on a device a copy, the first time after a change.
  virtual std::span<const float> weights() = 0;

  // Finds the gradient of the worker's batch at the weights, or at its local weights if local steps have begun. Returns
  // the loss.
  virtual double find_gradient(std::uint64_t step) = 0;
  // Local steps start from the weights. Each applies the gradient by the optimiser. At the end the gradient is the
  // difference between the weights and the local ones.
  virtual void begin_local_steps() = 0;
  virtual void local_step(double lr) = 0;
  virtual void end_local_steps() = 0;

  // Where it is. Valid until the weights change.
  virtual Gradient gradient() const = 0;

  // The optimiser applies the update of the worker's last step; the outer one if there is one: then the update is what
  // all made of their local steps.
  virtual void apply_update(const Worker& worker, const Applied& how) = 0;

  // The states of the optimiser and of the outer one; that is empty if there is none.
  virtual std::vector<std::byte> save(Optimises what) = 0;
  virtual void load(Optimises what, std::span<const std::byte> bytes) = 0;
};

struct ReplicaPlan {
  Problem& problem;
  int worker = 0;
  std::string optimiser;
  std::string outer_optimiser = {};  // empty: none
  double clip = 0;                   // the gradient's norm is limited to it; 0: it is not
};

std::unique_ptr<Replica> make_host_replica(const ReplicaPlan& plan);
// Null if the problem's gradients are on the host, this build has no code for the device, the gradient has to be
// clipped (its norm is a sum in the order of the entries), or SPARSEWIRE_SIFT=host asks for it.
std::unique_ptr<Replica> make_device_replica(const ReplicaPlan& plan);

}  // namespace sparsewire::train
