# Error memories on a GPU. SPARSEWIRE_CUDA=ON builds them where there is nvcc; else arrays on a device are refused.
set(sparsewire_has_cuda OFF)
if(SPARSEWIRE_CUDA)
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(sparsewire_has_cuda ON)
  else()
    message(STATUS "SPARSEWIRE_CUDA: there is no nvcc, so nothing is built for GPUs")
  endif()
endif()
if(NOT sparsewire_has_cuda)
  target_sources(sparsewire PRIVATE src/sparsify/cuda/no_cuda.cc)
  return()
endif()

if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
endif()
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)

# Its objects become part of the library.
add_library(sparsewire_cuda OBJECT src/kernels/cuda/unit_memory.cu src/kernels/cuda/gradient_norm.cu src/sparsify/cuda/device_memory.cu
                                   src/sparsify/cuda/device_arrays.cu src/sparsify/cuda/device_sum.cu
                                   src/sparsify/cuda/devices.cu)
target_include_directories(sparsewire_cuda PRIVATE src include)
sparsewire_cuda_options(sparsewire_cuda)
target_sources(sparsewire PRIVATE $<TARGET_OBJECTS:sparsewire_cuda>)
target_link_libraries(sparsewire PRIVATE CUDA::cudart_static)
