// exchange_bench: times whole steps of many workers (sift, encode, exchange, decode, scatter) beside a dense all-reduce
// in the same run.
//
//   exchange_bench --workers=4                              on threads of this process
//   tools/netlab -n 4 --rate 100mbit exchange_bench --transport=mpi      on four hosts with slow links
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data.h"
#include "flags.h"
#include "grid.h"
#include "sparsewire/errors.h"
#include "sparsewire/transport.h"
#include "sparsewire/worker.h"
#include "transport/control_gather.h"

namespace sparsewire::bench {
namespace {

constexpr const char* kHelp =
    R"(exchange_bench: times whole steps of many workers beside a dense all-reduce in the same run.

  --transport=threads|mpi   workers in this process (default), or one in each process that mpirun started
  --workers=P,Q,...         on threads: the numbers of workers, one table for each; default 4
  --n=N                     entries of the gradient; default 25000000
  --ratio=R                 ratio of entries kept, on the uplink and the downlink; default 0.001
  --steps=N                 timed steps for each row, after two that are not timed; default 5
  --md                      print Markdown
  --help                    print this help

The time of a row is that of the slowest rank, the median over the steps. Its bytes, up and down, are the mean over the
ranks; those of the busiest rank include the bytes that it moves as a server.
)";

std::vector<double> of_all_ranks(Transport& transport, double mine) {
  std::vector<double> all;
  ControlGather(transport).gather(mine, all);
  return all;
}

struct Options {
  bool mpi = false;
  std::vector<int> workers = {4};
  std::size_t n = 25'000'000;
  std::string ratio = "0.001";
  int steps = 5;
  Form form = Form::text;
};

struct Row {
  std::string label;
  WorkerConfig config;
};

std::vector<Row> rows(const std::string& ratio) {
  const std::string topk = "topk:ratio=" + ratio;
  const auto config = [&](std::string sparsifier, std::string exchange, std::string codec, std::string downlink) {
    WorkerConfig made;
    made.sparsifier = std::move(sparsifier);
    made.exchange = std::move(exchange);
    made.codec = std::move(codec);
    made.downlink = std::move(downlink);
    made.check_every = 0;
    return made;
  };
  return {
      {"dense, f32", config("dense", "dense", "auto:values=f32", "")},
      {"dense, bf16", config("dense", "dense", "auto:values=bf16", "")},
      {"allgather, f32", config(topk, "allgather", "auto:values=f32", "")},
      {"server, f32", config(topk, "server", "auto:values=f32", "")},
      {"server both ways, f32", config(topk, "server", "auto:values=f32", topk)},
      {"sharded, f32", config(topk, "sharded", "auto:values=f32", "")},
      {"sharded both ways, f32", config(topk, "sharded", "auto:values=f32", topk)},
      {"sharded both ways, bf16", config(topk, "sharded", "auto:values=bf16", topk)},
      {"auto, f32", config(topk, "auto", "auto:values=f32", "")},
  };
}

// The transport's all-reduce alone, without preparing the numbers: the reference for `dense`.
struct AllReduce {
  std::vector<float> floats;
  std::vector<std::uint16_t> halves;

  AllReduce(std::size_t n, bool bf16) : floats(bf16 ? 0 : n), halves(bf16 ? n : 0) {}
  void run(Transport& transport) {
    if (floats.empty()) {
      transport.all_reduce_sum({halves.data(), NumberType::bf16, halves.size()});
    } else {
      transport.all_reduce_sum(floats);
    }
  }
};

struct Measured {
  double milliseconds = 0;  // of the slowest rank
  double bytes = 0;         // up and down, mean over the ranks
  double busiest = 0;       // up, down and served, of the rank that moves most
  double density = 0;       // of the update
  StepStats last;           // of rank 0
};

double median(std::vector<double> numbers) {
  std::sort(numbers.begin(), numbers.end());
  return numbers[numbers.size() / 2];
}

// A different gradient of the same kind for each rank.
void fill(std::uint64_t step, const Transport& transport, std::span<float> gradient) {
  fill_gradient(step * static_cast<std::uint64_t>(transport.size()) + static_cast<std::uint64_t>(transport.rank()),
                gradient);
}

constexpr int kUntimed = 2;  // steps

// The time of the slowest rank: the median over the steps.
template <class Before, class Timed>
double time_steps(const Options& options, Transport& transport, Before&& before, Timed&& timed) {
  std::vector<double> times;
  for (int step = 0; step < kUntimed + options.steps; ++step) {
    before(static_cast<std::uint64_t>(step));
    transport.barrier();
    const auto begin = std::chrono::steady_clock::now();
    timed();
    const std::chrono::duration<double, std::milli> mine = std::chrono::steady_clock::now() - begin;
    const std::vector<double> all = of_all_ranks(transport, mine.count());
    if (step >= kUntimed) times.push_back(*std::max_element(all.begin(), all.end()));
  }
  return median(times);
}

Measured measure(const Row& row, const Options& options, Transport& transport) {
  std::vector<float> gradient(options.n);
  std::vector<float> update(options.n);
  Worker worker(row.config, options.n, transport);
  Measured measured;
  measured.milliseconds = time_steps(
      options, transport, [&](std::uint64_t step) { fill(step, transport, gradient); },
      [&] {
        worker.step(gradient);
        worker.write_update(update);
      });
  const StepStats& stats = worker.stats();
  const auto all_bytes = of_all_ranks(transport, static_cast<double>(stats.bytes_up + stats.bytes_down));
  measured.bytes = std::accumulate(all_bytes.begin(), all_bytes.end(), 0.0) / static_cast<double>(all_bytes.size());
  const auto all_moved =
      of_all_ranks(transport, static_cast<double>(stats.bytes_up + stats.bytes_down + stats.bytes_served));
  measured.busiest = *std::max_element(all_moved.begin(), all_moved.end());
  measured.density = stats.density;
  measured.last = stats;
  return measured;
}

std::string in_ms(std::uint64_t nanoseconds) { return fmt::format("{:.1f}", static_cast<double>(nanoseconds) * 1e-6); }

// The table on rank 0; an empty string on the others.
std::string table(const Options& options, Transport& transport) {
  Cells cells = {{fmt::format("{} workers, {} entries, {} kept", transport.size(), options.n, options.ratio),
                  "ms a step", "times faster than dense bf16", "MB up and down", "MB of the busiest rank",
                  "density of the update", "sift", "encode", "exchange", "decode", "merge", "apply"}};
  std::vector<Measured> all;
  std::vector<double> all_reduce;
  for (const bool bf16 : {false, true}) {
    AllReduce numbers(options.n, bf16);
    all_reduce.push_back(time_steps(
        options, transport, [](std::uint64_t) {}, [&] { numbers.run(transport); }));
  }
  const std::vector<Row> what = rows(options.ratio);
  for (const Row& row : what) {
    if (transport.rank() == 0) fmt::print(stderr, "{} workers: {}\n", transport.size(), row.label);
    all.push_back(measure(row, options, transport));
  }
  if (transport.rank() != 0) return "";
  const double dense = all[1].milliseconds;
  for (const bool bf16 : {false, true}) {
    const double time = all_reduce[bf16 ? 1 : 0];
    cells.push_back({bf16 ? "all-reduce alone, bf16" : "all-reduce alone, f32", fmt::format("{:.1f}", time),
                     fmt::format("{:.2f}", dense / time), "", "", "", "", "", "", "", "", ""});
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Measured& row = all[i];
    cells.push_back({what[i].label, fmt::format("{:.1f}", row.milliseconds),
                     fmt::format("{:.2f}", dense / row.milliseconds), fmt::format("{:.3f}", row.bytes * 1e-6),
                     fmt::format("{:.3f}", row.busiest * 1e-6), fmt::format("{:.5f}", row.density),
                     in_ms(row.last.ns_sift), in_ms(row.last.ns_encode), in_ms(row.last.ns_exchange),
                     in_ms(row.last.ns_decode), in_ms(row.last.ns_merge), in_ms(row.last.ns_apply)});
  }
  return grid(cells, options.form);
}

std::optional<Options> parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const std::size_t equals = std::min(argument.find('='), argument.size());
    const std::string_view flag = argument.substr(0, equals);
    std::string_view value = argument.substr(std::min(equals + 1, argument.size()));
    if (flag == "--help" || flag == "-h") return std::nullopt;
    if (flag == "--transport" && (value == "mpi" || value == "threads")) {
      options.mpi = value == "mpi";
    } else if (flag == "--workers") {
      options.workers.clear();
      while (!value.empty()) {
        const std::size_t comma = std::min(value.find(','), value.size());
        options.workers.push_back(parse_flag(flag, value.substr(0, comma), 1, 1024));
        value.remove_prefix(std::min(comma + 1, value.size()));
      }
    } else if (flag == "--n") {
      options.n = parse_flag<std::size_t>(flag, value, 1, 4'000'000'000);
    } else if (flag == "--ratio") {
      parse_flag(flag, value, 0.0, 1.0);
      options.ratio = value;
    } else if (flag == "--steps") {
      options.steps = parse_flag(flag, value, 1, 1'000'000);
    } else if (argument == "--md") {
      options.form = Form::markdown;
    } else {
      throw UsageError(fmt::format("unknown argument {}; see --help", argument));
    }
  }
  return options;
}

void run(const Options& options) {
  if (options.mpi) {
    const std::unique_ptr<Transport> transport = make_mpi_transport();
    fmt::print("{}", table(options, *transport));
    return;
  }
  for (const int workers : options.workers) {
    std::string text;
    run_on_threads(workers, [&](Transport& transport) {
      std::string mine = table(options, transport);
      if (transport.rank() == 0) text = std::move(mine);
    });
    fmt::print("{}", text);
  }
}

}  // namespace
}  // namespace sparsewire::bench

int main(int argc, char** argv) {
  using namespace sparsewire;
  try {
    const auto options = bench::parse(argc, argv);
    if (!options) {
      fmt::print("{}", bench::kHelp);
      return 0;
    }
    bench::run(*options);
    return 0;
  } catch (const UsageError& error) {
    fmt::print(stderr, "exchange_bench: {}\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "exchange_bench: {}\n", error.what());
    return 1;
  }
}
