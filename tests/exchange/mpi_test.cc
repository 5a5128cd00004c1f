// Runs the bodies of the exchange tests on processes: `mpirun -n 4 exchange_mpi_test`. Rank 0 then runs them again on
// the same number of threads, which must give the same bits, and prints a checksum of all updates. Exit code 1 on
// failure.
//
// `exchange_mpi_test --threads 4` runs only the part on threads.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>

#include "exchange/bodies.h"

namespace sparsewire {
namespace {

struct Sums {
  std::uint64_t exact = 0;    // checksum of the updates whose bits do not depend on the engine
  std::uint64_t reduced = 0;  // checksum of the updates made with the engine's own all-reduce
};

// Every sparsifier with every exchange, and bad gradients on two ranks.
Sums run_all(Transport& transport) {
  Sums sums;
  for (const SparsifierInfo& info : sparsifiers()) {
    for (const bodies::ExchangeCase& setup : bodies::every_exchange_case()) {
      const bool is_reduced = setup.exchange == "dense" || (setup.exchange == "auto" && info.name == "dense");
      for (const char* codec : {"auto", "auto:values=bf16"}) {
        bodies::Plan plan = bodies::plan_of(std::string(info.example), setup, codec);
        std::uint64_t& sum = is_reduced ? sums.reduced : sums.exact;
        sum = bodies::mixed(sum ^ bodies::replicas_stay_equal(transport, plan, bodies::kSlowBuild ? 20 : 120));
        if (!is_reduced || plan.config.codec == "auto") bodies::nothing_is_lost(transport, plan, 20);
        plan.weights.clear();
        const bodies::BadEntry bad[] = {{transport.size() - 1, 17, std::numeric_limits<float>::quiet_NaN()},
                                        {transport.size() / 2, 500, std::numeric_limits<float>::infinity()}};
        bodies::Runner run(plan, transport);
        run.step(0);
        for (const bodies::BadEntry& entry : bad) {
          bodies::fill_gradient(run.gradient, plan.seed, transport.rank(), 1);
          if (entry.rank == transport.rank()) run.gradient[entry.index] = entry.value;
          const bodies::Failure failure = bodies::all_fail(transport, plan, run, 1);
          bodies::require_equal(entry.rank, failure.rank, run.at(1) + ": the rank that failed");
          bodies::require_equal(entry.index, failure.index, run.at(1) + ": where it failed");
        }
        run.step(1);
        bodies::require_same_everywhere(transport, std::span<const float>(run.weights), run.at(1));
      }
    }
  }
  return sums;
}

Sums run_all_on_threads(int ranks) {
  Sums sums;
  run_on_threads(ranks, [&](Transport& transport) {
    const Sums mine = run_all(transport);
    if (transport.rank() == 0) sums = mine;
  });
  return sums;
}

void print(const char* engine, int ranks, const Sums& sums) {
  std::printf("%s, %d ranks: updates %016llx, by all-reduce %016llx\n", engine, ranks,
              static_cast<unsigned long long>(sums.exact), static_cast<unsigned long long>(sums.reduced));
}

int run(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == "--threads") {
    const int ranks = std::atoi(argv[2]);
    print("threads", ranks, run_all_on_threads(ranks));
    return 0;
  }
  const auto transport = make_mpi_transport();
  Sums sums;
  try {
    sums = run_all(*transport);
  } catch (const std::exception& error) {
    transport->fail(error.what());  // ends the others at once
    throw;
  }
  bool is_same = true;
  if (transport->rank() == 0) {
    const Sums expected = run_all_on_threads(transport->size());
    print("mpi", transport->size(), sums);
    print("threads", transport->size(), expected);
    is_same = sums.exact == expected.exact;
    if (!is_same) std::fprintf(stderr, "the updates over MPI differ from those over threads\n");
  }
  // No barrier: the others wait for rank 0 in MPI_Finalize, which has no deadline. On a busy machine it needs minutes.
  return is_same ? 0 : 1;
}

}  // namespace
}  // namespace sparsewire

int main(int argc, char** argv) {
  try {
    return sparsewire::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
