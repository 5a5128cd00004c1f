# How our own code is compiled: the library, the laboratory, the tests and the benches.
function(sparsewire_compile_options target)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wnon-virtual-dtor -Woverloaded-virtual
    -Wno-missing-field-initializers  # {.rank = 3} leaves the rest out on purpose
    # g++ 12 sees overlapping memory in "text" + std::string; GCC bug 105651, gone in 13.
    $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>
    $<$<BOOL:${SPARSEWIRE_WERROR}>:-Werror>)
  target_compile_options(${target} PRIVATE $<TARGET_PROPERTY:sparsewire::equal_bits,INTERFACE_COMPILE_OPTIONS>)
endfunction()

# A target of its own for nvcc, which takes other options than the C++ compiler. The standard as an option, because CMake 3.25
# does not know those of nvcc 13.
function(sparsewire_cuda_options target)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_link_libraries(${target} PRIVATE CUDA::cudart_static)
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20 --expt-relaxed-constexpr>
    $<TARGET_PROPERTY:sparsewire::equal_bits,INTERFACE_COMPILE_OPTIONS>)
endfunction()
