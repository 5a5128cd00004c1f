// The loop of every bench: what is set up and put away around the timed part is not counted.
//
// Neither UseManualTime nor Iterations: both would add their word to the name of a bench, and the names are fixed. So
// the clock is stopped by hand (a microsecond, of milliseconds), and one repetition is one batch of steps whatever
// --benchmark_min_time says, if it asks for no more than that.
#pragma once

#include <benchmark/benchmark.h>

namespace sparsewire::bench {

// Even, as case:jump goes up and down in turn.
inline constexpr int kStepsPerRepetition = 4;

template <class Before, class Timed, class After>
void time_steps(benchmark::State& state, int steps_per_repetition, Before&& before, Timed&& timed, After&& after) {
  while (state.KeepRunningBatch(steps_per_repetition)) {
    for (int step = 0; step < steps_per_repetition; ++step) {
      state.PauseTiming();
      before();
      state.ResumeTiming();
      timed();
      benchmark::ClobberMemory();
      state.PauseTiming();
      after();
      state.ResumeTiming();
    }
  }
}

}  // namespace sparsewire::bench
