// Ctrl-C and SIGTERM as a wish: the training stops after the step it is in, on all ranks the same.
#pragma once

namespace sparsewire::train {

// From now on the first SIGINT or SIGTERM is a wish to stop, and a second one ends the program at once.
void catch_stop_signals();

// Whether a signal has come.
bool is_stop_wished() noexcept;

}  // namespace sparsewire::train
