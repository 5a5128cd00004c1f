// Ctrl-C, SIGTERM and the end of the terminal (SIGHUP) as requests to stop: the training stops after the current step,
// on all ranks after the same one.
#pragma once

namespace sparsewire::train {

// While an object of this class exists, the first of these signals sets a flag, and a second one ends the program at
// once. For the time of a training only: before and after it nobody looks at the flag.
class StopSignals {
 public:
  static constexpr int kCount = 3;

  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

 private:
  using Handler = void (*)(int);
  Handler before_[kCount];
};

// Whether a signal has come.
bool stop_requested() noexcept;

}  // namespace sparsewire::train
