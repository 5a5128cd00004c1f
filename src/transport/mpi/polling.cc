#include "transport/mpi/polling.h"

#include <fmt/core.h>

#include <array>
#include <string>
#include <thread>

#include "sparsewire/errors.h"

namespace sparsewire::mpi {
namespace {

std::string error_string(int code) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  return {text.data(), static_cast<std::size_t>(length)};
}

}  // namespace

void Backoff::pause() {
  constexpr int kBusyPolls = 20;
  constexpr int kYieldingPolls = 2000;
  ++polls_;
  if (polls_ <= kBusyPolls) return;
  if (polls_ <= kYieldingPolls) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

void check(int code, int rank) {
  if (code != MPI_SUCCESS) throw TransportError(fmt::format("[mpi] {}", error_string(code)), rank);
}

bool is_complete(MPI_Request& request, int rank) {
  int complete = 0;
  check(MPI_Test(&request, &complete, MPI_STATUS_IGNORE), rank);
  return complete != 0;
}

bool wait_until(std::optional<Clock::time_point> end, MPI_Request& request) {
  Backoff backoff;
  while (!is_complete(request)) {
    if (end && Clock::now() >= *end) return false;
    backoff.pause();
  }
  return true;
}

}  // namespace sparsewire::mpi
