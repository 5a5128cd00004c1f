// SPARSEWIRE_WIDE before a function: it is compiled for each level of x86-64, and the widest one that the machine
// supports is run. SPARSEWIRE_HALF_WIDE: the same, with vectors of at most 32 bytes.
//
// Only g++ supports these level names, and the choice happens before main, where sanitizers do not work yet. In other
// builds there is one version.
#pragma once

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define SPARSEWIRE_WIDE __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#define SPARSEWIRE_HALF_WIDE __attribute__((target_clones("arch=x86-64-v3", "default")))
#else
#define SPARSEWIRE_WIDE
#define SPARSEWIRE_HALF_WIDE
#endif
