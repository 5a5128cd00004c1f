// Ctrl-C, SIGTERM and a terminal that goes away (SIGHUP) as a wish: the training stops after the step it is in, on all
// ranks the same.
#pragma once

namespace sparsewire::train {

// As long as one lives, the first of these signals is a wish to stop, and a second one ends the program at once.
// Around a training only: what comes before and after would not look at the wish.
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
