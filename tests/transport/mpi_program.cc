// A program for tests under mpirun:
//
//   mpi_program killed        the last rank is killed while the others wait for it
//   mpi_program stuck         the last rank stops making calls; the others print an error and return 3
//   mpi_program absent        the last rank does not make a transport; the others print errors and return 3
//   mpi_program exits         the last rank calls exit(5) while the others wait; they print an error and return 3
//   mpi_program busy          the last rank works for longer than the deadline after its last call; all return 0
//   mpi_program refuse        every rank returns 4
//   mpi_program time BYTES    prints the milliseconds in which every rank sent that much to its neighbour
//   mpi_program reduce BYTES  prints the milliseconds of all_reduce_sum, and of MPI_Allreduce
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "patience.h"
#include "sparsewire/errors.h"
#include "sparsewire/transport.h"

namespace {

using sparsewire::Transport;

const std::chrono::milliseconds kDeadline = sparsewire::deadline_that_passes();

void time(Transport& transport, std::size_t size) {
  const int next = (transport.rank() + 1) % transport.size();
  const int previous = (transport.rank() + transport.size() - 1) % transport.size();
  const std::vector<std::byte> sent(size);
  std::vector<std::byte> received(size);
  const Transport::Outgoing out{next, sent};
  const Transport::Incoming in{previous, &received};
  transport.barrier();
  const auto start = std::chrono::steady_clock::now();
  transport.send_receive({&out, 1}, {&in, 1});
  transport.barrier();
  const auto time = std::chrono::steady_clock::now() - start;
  if (transport.rank() == 0) {
    std::printf("%lld\n", static_cast<long long>(std::chrono::duration_cast<std::chrono::milliseconds>(time).count()));
  }
}

void time_reduce(Transport& transport, std::size_t size) {
  std::vector<float> numbers(size / sizeof(float), 1.0F);
  std::vector<float> sums(numbers.size());
  const auto best = [&](const auto& reduce) {
    double least = 1e30;
    for (int i = 0; i < 5; ++i) {
      transport.barrier();
      const auto start = std::chrono::steady_clock::now();
      reduce();
      const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
      least = std::min(least, time.count());
    }
    return least;
  };
  const double bare = best([&] {
    MPI_Allreduce(numbers.data(), sums.data(), static_cast<int>(numbers.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  });
  const double ours = best([&] { transport.all_reduce_sum(numbers); });
  if (transport.rank() == 0) std::printf("%.1f, MPI_Allreduce %.1f\n", ours, bare);
}

void make_without_the_last_rank() {
  int provided = 0;
  int rank = 0;
  int size = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (rank == size - 1) pause();
  try {
    sparsewire::make_mpi_transport(kDeadline);
  } catch (const sparsewire::TransportError& error) {
    std::fprintf(stderr, "TransportError: %s\n", error.what());
  }
  sparsewire::make_mpi_transport();  // fails at once, not after the default deadline
}

int run(std::string_view what, std::size_t size) {
  if (what == "absent") make_without_the_last_rank();
  const bool has_short_deadline = what == "stuck" || what == "busy";
  const auto transport = sparsewire::make_mpi_transport(has_short_deadline ? kDeadline : sparsewire::kDefaultDeadline);
  const bool is_last = transport->rank() == transport->size() - 1;
  transport->barrier();
  if (what == "refuse") return 4;
  if (what == "time") {
    time(*transport, size);
    return 0;
  }
  if (what == "reduce") {
    time_reduce(*transport, size);
    return 0;
  }
  if (what == "busy") {
    if (is_last) std::this_thread::sleep_for(kDeadline * 3 / 2);
    return 0;
  }
  if (is_last && what == "exits") std::exit(5);  // NOLINT(concurrency-mt-unsafe): there is one thread
  if (is_last && what == "killed") raise(SIGKILL);
  if (is_last) pause();
  transport->barrier();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? argv[1] : "", argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 0);
  } catch (const sparsewire::TransportError& error) {
    std::fprintf(stderr, "TransportError: %s\n", error.what());
    return 3;
  }
}
