// A build without CUDA: replicas are on the host.
#include "loop/replica_arrays.h"

namespace sparsewire::train {

std::unique_ptr<ReplicaArrays> make_replica_arrays(Device, void*, std::size_t) { return nullptr; }

}  // namespace sparsewire::train
