# Steps on a GPU: the kernels, their tests and a bench. Off unless asked for; nothing else uses them yet.
if(NOT SPARSEWIRE_CUDA)
  return()
endif()
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  message(STATUS "SPARSEWIRE_CUDA: there is no nvcc, so nothing is built for GPUs")
  return()
endif()
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
endif()
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)

add_library(sparsewire_cuda STATIC ${PROJECT_SOURCE_DIR}/src/kernels/cuda/unit_memory.cu)
target_include_directories(sparsewire_cuda PUBLIC ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(sparsewire_cuda PUBLIC sparsewire CUDA::cudart_static)
# As an option, because CMake 3.25 does not know the standards of nvcc 13.
target_compile_options(sparsewire_cuda PUBLIC $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>)
# The same bits as on the processor: no contraction, no flush to zero, exact division and square root.
target_compile_options(sparsewire_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-fmad=false -ftz=false -prec-div=true
                                               -prec-sqrt=true --expt-relaxed-constexpr>)

add_executable(cuda_bench EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/bench/cuda/main.cu)
target_link_libraries(cuda_bench PRIVATE sparsewire_cuda)
if(SPARSEWIRE_BUILD_TESTS)
  find_package(GTest CONFIG REQUIRED)
  add_executable(cuda_tests ${PROJECT_SOURCE_DIR}/tests/cuda/unit_memory_test.cu)
  target_link_libraries(cuda_tests PRIVATE sparsewire_cuda GTest::gtest_main)
  add_test(NAME Cuda COMMAND cuda_tests)
  set_tests_properties(Cuda PROPERTIES TIMEOUT 600)
endif()
