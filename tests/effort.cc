#include "effort.h"

namespace sparsewire {

#ifdef SPARSEWIRE_SLOW_BUILD
const bool kSlowBuild = true;
#else
const bool kSlowBuild = false;
#endif

#ifdef SPARSEWIRE_TEST_THREADS_ONLY
const bool kThreadsOnly = true;
#else
const bool kThreadsOnly = false;
#endif

}  // namespace sparsewire
