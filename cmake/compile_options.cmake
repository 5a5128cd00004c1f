# How our own code is compiled: the library, the program, the tests and the benches.
function(sparsewire_compile_options target)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wnon-virtual-dtor -Woverloaded-virtual
    -Wno-missing-field-initializers  # {.rank = 3} leaves the rest out on purpose
    # g++ 12 sees overlapping memory in "text" + std::string; GCC bug 105651, gone in 13.
    $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>
    # g++ and clang fuse a*b+c by default, and then results would depend on the instruction set.
    -ffp-contract=off
    $<$<BOOL:${SPARSEWIRE_WERROR}>:-Werror>)
endfunction()
