// The loop of every bench. The set-up before and the tear-down after the timed part are not counted.
//
// It does not use UseManualTime or Iterations: both add a suffix to the name of a bench, and the names are fixed.
// Instead it pauses the timer (which costs a microsecond, for steps of milliseconds), and one repetition is one batch
// of steps, unless --benchmark_min_time asks for more.
#pragma once

#include <benchmark/benchmark.h>

namespace sparsewire::bench {

// An even number, because case:jump alternates between up and down.
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
