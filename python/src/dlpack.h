// The structures of the DLPack ABI (https://dmlc.github.io/dlpack), as far as we read them: how a tensor crosses from
// one framework to another without a copy. Producers hand out a capsule with one of the two managed tensors.
#pragma once

#include <cstdint>
#include <memory>

namespace sparsewire::python::dlpack {

inline constexpr std::int32_t kCpu = 1;  // device types
inline constexpr std::int32_t kCuda = 2;
inline constexpr std::int32_t kCudaHost = 3;      // memory of the host that is pinned for CUDA
inline constexpr std::int32_t kCudaManaged = 13;  // memory that moves between the host and its GPUs
inline constexpr std::uint8_t kFloat = 2;         // number types
inline constexpr std::uint8_t kBfloat = 4;
inline constexpr std::uint64_t kReadOnly = 1;  // a flag

struct DeviceOf {
  std::int32_t type;
  std::int32_t index;
};

struct DataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct Tensor {
  void* data;
  DeviceOf device;
  std::int32_t dimensions;
  DataType type;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements; null: C order
  std::uint64_t byte_offset;
};

// In a capsule named "dltensor".
struct Managed {
  Tensor tensor;
  void* context;
  void (*deleter)(Managed*);
};

struct Version {
  std::uint32_t major;
  std::uint32_t minor;
};

// In a capsule named "dltensor_versioned".
struct ManagedVersioned {
  Version version;
  void* context;
  void (*deleter)(ManagedVersioned*);
  std::uint64_t flags;
  Tensor tensor;
};

// A tensor that was taken out of its capsule.
struct Borrowed {
  std::shared_ptr<void> owner;
  Tensor* tensor;
  bool is_read_only;
};

}  // namespace sparsewire::python::dlpack
