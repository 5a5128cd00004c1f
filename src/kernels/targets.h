// The instruction sets that Highway compiles for. To be included before <hwy/foreach_target.h>.
#pragma once

// Arrays of SIMD vectors need a size known at compile time; so Arm machines with SVE run the NEON code.
// SPARSEWIRE_SKIP_TARGETS: more to leave out, to save compile time; the sanitizer presets use it.
#ifdef SPARSEWIRE_SKIP_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | SPARSEWIRE_SKIP_TARGETS)
#else
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif
