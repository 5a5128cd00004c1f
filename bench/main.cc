// sparsewire_bench: times a step beside a lower bound for it. Google Benchmark with its own names, defaults and table.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "bench.h"
#include "codecs.h"
#include "export.h"
#include "flags.h"
#include "floor.h"
#include "kernels/simd.h"
#include "local.h"
#include "sparsewire/errors.h"
#include "steps.h"
#include "table.h"
#include "threads.h"
#include "wire.h"

namespace sparsewire::bench {
namespace {

constexpr const char* kHelp = R"(sparsewire_bench: times one step of every sparsifier beside memory += gradient.

  --table             time and print the table of docs/archive/benchmarks.md (a few minutes, 3 GB of memory)
  --wire              print the lengths of frames in bits; times nothing, but trains a network (two minutes)
  --table-md, --wire-md    the same, as Markdown
  --threads 1,2,4     time steps on these numbers of threads, each beside memory += gradient on as many
                      (with --benchmark_filter only some rows of that table, with --table-md as Markdown)
  --n=N               entries of the gradient; default 25000000
  --warmup-steps=N    steps of error feedback that make the memories, before anything is timed; default 300
  --export DIR        write these memories and gradients as .npy files for bench/torch_step_cpu.py; times nothing
  --help              print this help

Benches are named
  floor/add[/threads:2]    floor/memcpy[/threads:2]    yardstick/nth_element[/ratio:0.01]
  step/SPARSIFIER/ratio:R/case:steady|noisy|first|jump|equal|sparse|sorted/threads:T/n:N
  codec/encode/CODEC/ratio:R/n:N    codec/decode/CODEC/ratio:R/n:N
  local/sharded/ratio:R/n:N    all that one of four ranks computes in a step of sharded with a downlink
Every answer is checked at full size before it is timed. A wrong answer is reported instead of a time, and the exit code
is 1.

All flags of Google Benchmark work too, for example
  --benchmark_list_tests
  --benchmark_filter='floor/add|step/topk/ratio:0.001/case:steady/threads:1'
  --benchmark_format=json  --benchmark_out=FILE
Defaults of sparsewire_bench for them: --benchmark_repetitions=15 --benchmark_enable_random_interleaving=true
--benchmark_display_aggregates_only=true, and one batch of 4 steps per repetition (--benchmark_min_time=0.000001).
SPARSEWIRE_SIMD=avx2 (or another level) forces the instruction set of the kernels.

)";

struct Options {
  char* program = nullptr;  // Google Benchmark keeps this pointer
  Settings settings;
  std::optional<Form> table;
  std::optional<Form> wire;
  std::vector<int> threads;
  std::string export_folder;
  bool help = false;
  std::vector<std::string> others;  // for Google Benchmark
};

Options parse(char* program, const std::vector<std::string>& arguments) {
  Options options;
  options.program = program;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const std::size_t equals = argument.find('=');
    const std::string flag = argument.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : argument.substr(equals + 1);
    if (flag == "--n") {
      options.settings.n = parse_flag<std::size_t>(flag, value, 1, 4'000'000'000);
    } else if (flag == "--warmup-steps") {
      options.settings.warmup_steps = parse_flag<int>(flag, value, 1, 1'000'000);
    } else if (argument == "--table") {
      options.table = Form::text;
    } else if (argument == "--table-md") {
      options.table = Form::markdown;
    } else if (argument == "--wire") {
      options.wire = Form::text;
    } else if (argument == "--wire-md") {
      options.wire = Form::markdown;
    } else if (flag == "--export") {
      const bool is_next = equals == std::string::npos && i + 1 < arguments.size();
      options.export_folder = is_next ? arguments[++i] : value;
      if (options.export_folder.empty()) throw UsageError("--export needs a folder: --export DIR");
    } else if (flag == "--threads") {
      const bool is_next = equals == std::string::npos && i + 1 < arguments.size();
      std::istringstream counts((is_next ? arguments[++i] : value) + ",");
      for (std::string count; std::getline(counts, count, ',');) {
        options.threads.push_back(parse_flag<int>(flag, count, 1, 1024));
      }
    } else if (argument == "--help" || argument == "-h") {
      options.help = true;
    } else {
      options.others.push_back(argument);
    }
  }
  return options;
}

// The defaults of this program come first, so that the user's flags override them. A default is left out if the user
// set the environment variable of that flag (BENCHMARK_REPETITIONS).
void initialize(const Options& options) {
  std::vector<std::pair<std::string, std::string>> defaults = {{"benchmark_repetitions", "15"},
                                                               {"benchmark_enable_random_interleaving", "true"},
                                                               {"benchmark_min_time", "0.000001"}};
  if (!options.table) defaults.emplace_back("benchmark_display_aggregates_only", "true");

  std::vector<std::string> arguments;
  for (const auto& [flag, value] : defaults) {
    std::string variable = flag;
    std::transform(variable.begin(), variable.end(), variable.begin(),
                   [](unsigned char letter) { return static_cast<char>(std::toupper(letter)); });
    if (std::getenv(variable.c_str()) == nullptr) arguments.push_back(fmt::format("--{}={}", flag, value));
  }
  arguments.insert(arguments.end(), options.others.begin(), options.others.end());

  std::vector<char*> pointers = {options.program};
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  auto count = static_cast<int>(pointers.size());
  pointers.push_back(nullptr);
  benchmark::Initialize(&count, pointers.data());
  if (count > 1) throw UsageError(fmt::format("unknown argument {}; see --help", pointers[1]));
}

int run(const Options& options) {
  initialize(options);
  Bench bench(options.settings);
  if (options.wire) {
    fmt::print("{}", wire_table(bench, *options.wire));
    return 0;
  }
  if (!options.export_folder.empty()) {
    export_data(bench, options.export_folder);
    return 0;
  }
  if (!options.threads.empty()) {
    fmt::print("{}", threads_table(bench, options.threads, options.table.value_or(Form::text)));
    for (const auto& [name, failure] : bench.failures) fmt::print(stderr, "{}: {}\n", name, failure);
    return bench.failures.empty() ? 0 : 1;
  }
  benchmark::AddCustomContext("sparsewire_simd", kernels::simd_level());
  benchmark::AddCustomContext("warmup_steps", std::to_string(bench.warmup_steps()));
  register_floors(bench);
  const std::vector<std::unique_ptr<Step>> steps = register_steps(bench);
  const std::vector<std::unique_ptr<CodecBench>> codecs = register_codecs(bench);
  const std::vector<std::unique_ptr<Local>> locals = register_locals(bench);

  std::size_t matches = 0;
  if (options.table) {
    Times times;
    if (benchmark::GetBenchmarkFilter().empty()) benchmark::SetBenchmarkFilter(table_filter(bench.n()));
    matches = benchmark::RunSpecifiedBenchmarks(&times);
    fmt::print("{}", table(times, bench, *options.table));
  } else {
    matches = benchmark::RunSpecifiedBenchmarks();
  }
  benchmark::Shutdown();  // the registered benches refer to `bench`, `steps`, `codecs` and `locals`
  for (const auto& [name, failure] : bench.failures) fmt::print(stderr, "{}: {}\n", name, failure);
  return matches > 0 && bench.failures.empty() ? 0 : 1;
}

}  // namespace
}  // namespace sparsewire::bench

int main(int argc, char** argv) {
  using namespace sparsewire;
  try {
    const bench::Options options = bench::parse(argv[0], std::vector<std::string>(argv + 1, argv + argc));
    if (options.help) {
      fmt::print("{}", bench::kHelp);
      std::fflush(stdout);
      benchmark::PrintDefaultHelp();
      return 0;
    }
    kernels::choose_simd();
    return bench::run(options);
  } catch (const UsageError& error) {
    fmt::print(stderr, "sparsewire_bench: {}\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "sparsewire_bench: {}\n", error.what());
    return 1;
  }
}
