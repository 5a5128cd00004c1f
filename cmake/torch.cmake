# Deep networks: the module libsparsewire_torch.so, which the program loads when it needs it (src/train/model.h). Optional:
# -DSPARSEWIRE_TORCH=ON needs libtorch, and
# -DCMAKE_PREFIX_PATH=$(python -c 'import torch; print(torch.utils.cmake_prefix_path)') finds the one inside PyTorch.
find_package(Torch 2.0 CONFIG REQUIRED)

file(GLOB sources CONFIGURE_DEPENDS src/train/torch/*.cc)
add_library(sparsewire_torch MODULE ${sources})
target_compile_features(sparsewire_torch PRIVATE cxx_std_20)
target_include_directories(sparsewire_torch PRIVATE src)
target_link_libraries(sparsewire_torch PRIVATE ${TORCH_LIBRARIES})  # with the ABI of TORCH_CXX_FLAGS
set_target_properties(sparsewire_torch PROPERTIES CXX_VISIBILITY_PRESET hidden INSTALL_RPATH_USE_LINK_PATH ON
                                                  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/apps/sparsewire)
sparsewire_compile_options(sparsewire_torch)
# Compiled as one unit: nearly all of the time goes into libtorch's headers, and nothing here is hot.
set_target_properties(sparsewire_torch PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
target_compile_options(sparsewire_torch PRIVATE $<$<CONFIG:Release>:-O1>)
