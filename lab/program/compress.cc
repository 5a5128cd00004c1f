// sparsewire compress: one step of a worker's uplink, on files. Adds a gradient to the memory, moves the entries worth
// sending into a frame, and keeps the rest in the memory for the next step.
//
// No entry may be lost. So everything that can fail is done before the first file changes, and the frame changes first:
// if the machine stops just after that, the entries of the frame are still in the memory as well.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "commands.h"
#include "files/input.h"
#include "files/lock.h"
#include "files/npy.h"
#include "files/replace.h"
#include "frame.h"
#include "message.h"
#include "options.h"
#include "sparsewire/codec.h"
#include "sparsewire/errors.h"
#include "sparsewire/sifter.h"
#include "text/counted.h"

namespace sparsewire::cli {
namespace {

struct CompressOptions {
  std::string gradient;
  std::string sparsifier;
  std::string feedback = "ef";
  std::string codec = "auto";
  std::string output;
  std::optional<std::string> memory;
  std::optional<std::string> state;
  std::optional<std::string> json;
  std::optional<std::uint64_t> step;
  std::optional<std::uint64_t> seed;
  std::optional<std::uint64_t> rank;
  std::optional<std::uint64_t> ranks;
  std::optional<float> lr;
};

// Whether the file exists, so that the step continues from it. Throws UsageError for a path that is not a regular file.
bool exists(const std::string& path, const char* option) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) return false;
  if (error) throw UsageError(fmt::format("cannot read '{}': {}", path, error.message()));
  if (files::is_standard_output(path)) throw UsageError(fmt::format("{} '{}' is the standard output", option, path));
  if (is_regular_file(status)) return true;
  throw UsageError(fmt::format("{} '{}' is not a file", option, path));
}

// Another compress on the same memory or state at the same time would lose what one of the two leaves there. Throws
// UsageError.
std::unique_ptr<files::FileLock> lock(const std::optional<std::string>& path, const char* option) {
  if (!path) return nullptr;
  exists(*path, option);  // a device is refused before a lock is made beside it
  auto taken = std::make_unique<files::FileLock>(*path);
  if (!taken->is_taken()) return taken;
  throw UsageError(
      fmt::format("{} '{}' is in use by another 'sparsewire compress': wait for it to end, or give each its "
                  "own file",
                  option, *path));
}

SifterContext context_of(const CompressOptions& options, std::size_t dim) {
  SifterContext context{.layout = dim};
  const std::uint64_t rank = options.rank.value_or(0);
  const std::uint64_t ranks = options.ranks.value_or(rank + 1);
  if (rank >= ranks) throw UsageError(fmt::format("--rank {} is not below --ranks {}", rank, ranks));
  context.rank = static_cast<int>(rank);
  context.ranks = static_cast<int>(ranks);
  context.seed = options.seed.value_or(0);
  context.first_step = options.step.value_or(0);
  return context;
}

void load_state(const std::string& path, const std::optional<std::uint64_t>& step, Sifter& sifter) {
  const files::Bytes bytes = files::read_file(path);
  try {
    sifter.load(bytes.span());
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("'{}': {}", path, error.what()));
  }
  if (step && *step != sifter.step()) {
    throw UsageError(fmt::format("--step {}, but the state '{}' is at step {}", *step, path, sifter.step()));
  }
}

// Loads the memory into the sifter. If a state was loaded, which contains the memory, both must be the same.
void load_memory(const std::string& path, const std::optional<std::string>& state, Sifter& sifter) {
  const files::Array array = files::read_npy(path);
  if (array.type != NumberType::f32) throw UsageError(fmt::format("'{}' is float16; a memory is float32", path));
  if (array.size != sifter.layout().dim()) {
    throw UsageError(fmt::format("the memory '{}' has {} {}, the gradient {}", path, array.size,
                                 array.size == 1 ? "entry" : "entries", sifter.layout().dim()));
  }
  const auto numbers = array.floats();
  const auto bad = std::find_if(numbers.begin(), numbers.end(), [](float number) { return !std::isfinite(number); });
  if (bad != numbers.end()) {
    throw UsageError(fmt::format("the memory '{}' holds {} at index {}", path, *bad, bad - numbers.begin()));
  }
  if (state && !std::ranges::equal(numbers, sifter.memory())) {
    throw UsageError(fmt::format(
        "the memory '{}' differs from the one in the state '{}': one of them was changed, or an earlier step "
        "was interrupted between the two; to continue from the state, remove the memory",
        path, *state));
  }
  sifter.write_memory(numbers);
}

// A memory file does not say how many steps were done. A sparsifier that depends on it would take every step for the
// first one.
void warn_of_first_step(const CompressOptions& options) {
  if (!options.memory || options.state || options.step) return;
  const std::string name = options.sparsifier.substr(0, options.sparsifier.find(':'));
  const bool counts = name == "randomk" || name == "rtopk" || options.sparsifier.find("warmup_") != std::string::npos;
  if (!counts) return;
  complain(fmt::format("'{}' depends on the number of the step, which is 0 unless --step N or --state FILE is given",
                       options.sparsifier));
}

// A sifter that continues where the last call stopped.
Sifter make_sifter(const CompressOptions& options, std::size_t dim) {
  Sifter sifter(options.sparsifier, options.feedback, context_of(options, dim));
  if (!sifter.is_all_in_memory() && !options.state) {
    throw UsageError(
        fmt::format("'{}' with feedback '{}' keeps more than the memory from step to step: it needs --state FILE",
                    options.sparsifier, options.feedback));
  }
  std::optional<std::string> state;
  if (options.state && exists(*options.state, "--state")) {
    load_state(*options.state, options.step, sifter);
    state = options.state;
  }
  if (options.memory && exists(*options.memory, "--memory")) {
    load_memory(*options.memory, state, sifter);
  }
  return sifter;
}

float learning_rate(const CompressOptions& options) {
  if (options.lr && !parse_feedback(options.feedback).scale_by_lr) {
    throw UsageError(fmt::format("--lr needs --feedback ef:scale=lr; with '{}' it has no effect", options.feedback));
  }
  return options.lr.value_or(1.0F);
}

// "kept 25,000 of 25,000,000 entries in 135,940 bytes: 43.5 bits per entry, 736 times smaller than f32"
std::string summary(const FrameInfo& info) {
  std::string line = fmt::format("kept {} of {} entries in {} bytes", grouped(info.count), grouped(info.dim),
                                 grouped(info.frame_bytes));
  if (info.count > 0) line += fmt::format(": {:.1f} bits per entry", FrameSizes(info).bits_per_entry);
  const double times = static_cast<double>(sizeof(float) * info.dim) / static_cast<double>(info.frame_bytes);
  if (times > 1) line += fmt::format(", {:.{}f} times smaller than f32", times, times < 100 ? 1 : 0);
  return line + '\n';
}

void compress(const CompressOptions& options) {
  ignore_broken_outputs();
  const std::string input = input_path(options.gradient);
  const std::string output = output_path(options.output);
  check_distinct({{"the gradient", input},
                  {"--output", output},
                  {"--memory", options.memory},
                  {"--state", options.state},
                  {"--json", options.json}});
  const float lr = learning_rate(options);
  Codec codec(options.codec);
  const auto state_lock = lock(options.state, "--state");
  const auto memory_lock = lock(options.memory, "--memory");
  const files::Array gradient = files::read_npy(input);
  Sifter sifter = make_sifter(options, gradient.size);
  const std::uint64_t step = sifter.step();

  SparseVector sent;
  try {
    sifter.sift(gradient.gradient(), sent, lr);
  } catch (const BadGradient& error) {
    throw UsageError(fmt::format("'{}': {}", input, error.what()));
  }
  std::vector<std::byte> frame;
  std::vector<float> received;
  codec.encode(sent, frame, &received);
  sifter.keep_rounding_loss(sent, received);

  FrameInfo info;
  check_frame(inspect(frame, info), output);
  Json json = frame_json(info);
  json["step"] = step;

  std::optional<files::Replacement> memory_file;
  if (options.memory) {
    memory_file.emplace(*options.memory);
    files::write_npy(*memory_file, sifter.memory(), gradient.shape);
    memory_file->prepare();
  }
  std::optional<files::Replacement> state_file;
  if (options.state) {
    state_file.emplace(*options.state);
    state_file->write(sifter.save());
    state_file->prepare();
  }
  Report report(options.json, json, files::is_standard_output(output) ? "" : summary(info));
  files::Replacement frame_file(output);
  frame_file.write(frame);

  frame_file.prepare();  // a pipe or a device has received the frame now
  report.print();
  frame_file.commit();
  if (state_file) state_file->commit();
  if (memory_file) memory_file->commit();
  report.commit();
  warn_of_first_step(options);
}

}  // namespace

void add_compress(CLI::App& program) {
  CLI::App* const command =
      program.add_subcommand("compress", "Encode the largest entries of a gradient as a frame, and keep the rest");
  command->footer(
      "The frame is written before the memory and the state change; on an error no\n"
      "file changes.\n"
      "Examples:\n"
      "  sparsewire compress g.npy --sparsifier topk:ratio=0.01 --memory m.npy -o g.swf\n"
      "  sparsewire compress g.npy --sparsifier topk:k=99 --codec auto:values=bf16 -o -\n"
      "  sparsewire compress g.npy --sparsifier randomk:ratio=0.01 --codec seed \\\n"
      "    --step 7 --seed 1 -o g.swf\n"
      "  sparsewire compress g.npy --sparsifier threshold:ratio=0.01 --state s -o g.swf");
  add_load(*command);
  const auto options = std::make_shared<CompressOptions>();
  CompressOptions& o = *options;
  const auto add = [&](const char* name, auto& value, const char* type, const char* help) {
    return command->add_option(name, value, help)->type_name(type);
  };
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  constexpr auto kMostRanks = std::uint64_t{std::numeric_limits<int>::max()};
  add("IN.npy", o.gradient, "", "The gradient: float32 or float16, any shape; - is standard input")->required();
  add("--sparsifier", o.sparsifier, "SPEC", "Which entries are sent; 'sparsewire list' shows all")->required();
  add("-o,--output", o.output, "OUT.swf", "The frame; - is standard output")->required();
  add("--codec", o.codec, "SPEC", "How they are encoded (default auto: the shortest code, values in f32)");
  add("--feedback", o.feedback, "SPEC",
      "What happens to entries that are not sent: ef (default; kept for later), none or momentum");
  add("--memory", o.memory, "MEM.npy",
      "The error memory: what was not sent yet, float32; starts at zero if the file does not exist");
  add("--state", o.state, "FILE", "Everything that later steps depend on; starts at step 0 if the file does not exist");
  add_integer(*command, "--step", o.step, 0, kMost, "Number of this step (default: that of the state, or 0)");
  add_integer(*command, "--seed", o.seed, 0, kMost, "Random seed (default 0)");
  add_integer(*command, "--rank", o.rank, 0, kMostRanks - 1, "Number of this worker (default 0)");
  add_integer(*command, "--ranks", o.ranks, 1, kMostRanks, "How many workers there are (default: rank + 1)");
  add_float(*command, "--lr", o.lr, "Learning rate, for --feedback ef:scale=lr (default 1)");
  add_json(*command, o.json);
  command->callback([options] { compress(*options); });
}

}  // namespace sparsewire::cli
