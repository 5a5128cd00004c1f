# Deep networks: the module libsparsewire_torch.so, which the program loads when it needs it (model.h). Optional:
# -DSPARSEWIRE_TORCH=ON needs libtorch, and
# -DTorch_DIR=$(python -c 'import torch; print(torch.utils.cmake_prefix_path)')/Torch names the one inside PyTorch.
#
# Its own CMake package is not used: where libtorch has CUDA, that needs a compiler for CUDA, and we do not.
find_path(Torch_DIR TorchConfig.cmake PATH_SUFFIXES Torch share/cmake/Torch)
if(NOT Torch_DIR)
  message(FATAL_ERROR "SPARSEWIRE_TORCH=ON, and there is no libtorch: install PyTorch (pip install torch), then give "
                      "-DTorch_DIR=$(python -c 'import torch; print(torch.utils.cmake_prefix_path)')/Torch")
endif()
get_filename_component(torch_root ${Torch_DIR}/../../.. ABSOLUTE)
message(STATUS "libtorch: ${torch_root}")
set(torch_libraries ${torch_root}/lib/libtorch.so ${torch_root}/lib/libtorch_cpu.so ${torch_root}/lib/libc10.so)
if(EXISTS ${torch_root}/lib/libtorch_cuda.so)
  list(APPEND torch_libraries ${torch_root}/lib/libtorch_cuda.so ${torch_root}/lib/libc10_cuda.so)
endif()
# CUDA graphs need a header of CUDA, which PyTorch brings along or the toolkit has. Without it passes are slower.
if(EXISTS ${torch_root}/lib/libtorch_cuda.so)
  file(GLOB cuda_folders ${torch_root}/../nvidia/cu*/include ${torch_root}/../nvidia/cuda_runtime/include)
  find_path(SPARSEWIRE_CUDA_INCLUDE crt/host_config.h HINTS ${cuda_folders} /usr/local/cuda/include)
endif()
# Older ones say which ABI of the standard library they have.
file(STRINGS ${Torch_DIR}/TorchConfig.cmake torch_abi REGEX "set\\(TORCH_CXX_FLAGS .*_GLIBCXX_USE_CXX11_ABI=[01]")
string(REGEX MATCH "_GLIBCXX_USE_CXX11_ABI=[01]" torch_abi "${torch_abi}")

file(GLOB sources CONFIGURE_DEPENDS networks/torch/*.cc)
add_library(sparsewire_torch MODULE ${sources})
target_compile_features(sparsewire_torch PRIVATE cxx_std_20)
target_compile_definitions(sparsewire_torch PRIVATE ${torch_abi})
target_include_directories(sparsewire_torch PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}
                           $<TARGET_PROPERTY:sparsewire::sparsewire,INTERFACE_INCLUDE_DIRECTORIES>)
target_link_options(sparsewire_torch PRIVATE -Wl,--build-id)
target_include_directories(sparsewire_torch SYSTEM PRIVATE ${torch_root}/include)
if(SPARSEWIRE_CUDA_INCLUDE)
  target_compile_definitions(sparsewire_torch PRIVATE SPARSEWIRE_TORCH_CUDA)
  target_include_directories(sparsewire_torch SYSTEM PRIVATE ${SPARSEWIRE_CUDA_INCLUDE})
endif()
# Where nothing calls libtorch_cuda, it still has to be there: it registers itself.
target_link_libraries(sparsewire_torch PRIVATE -Wl,--no-as-needed ${torch_libraries} -Wl,--as-needed)
set_target_properties(sparsewire_torch PROPERTIES CXX_VISIBILITY_PRESET hidden INSTALL_RPATH_USE_LINK_PATH ON
                                                  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/apps/sparsewire)
sparsewire_compile_options(sparsewire_torch)
# Compiled as one unit: nearly all of the time goes into libtorch's headers, and nothing here is hot.
set_target_properties(sparsewire_torch PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
target_compile_options(sparsewire_torch PRIVATE $<$<CONFIG:Release>:-O1>)
