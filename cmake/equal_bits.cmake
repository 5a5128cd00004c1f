# sparsewire::equal_bits: the compiler options with which every machine gives the same bits. Users link it where they include
# sparsewire/support/portable_math.h, and where their own sums should not depend on the processor.
add_library(sparsewire_equal_bits INTERFACE)
add_library(sparsewire::equal_bits ALIAS sparsewire_equal_bits)
set_target_properties(sparsewire_equal_bits PROPERTIES EXPORT_NAME equal_bits)
# g++, clang and nvcc fuse a*b+c by default, and then results would depend on the instruction set. On a GPU also no flush to
# zero, and exact division and square root.
target_compile_options(sparsewire_equal_bits INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>
  "$<$<COMPILE_LANGUAGE:CUDA>:-fmad=false;-ftz=false;-prec-div=true;-prec-sqrt=true>")
