// sparsewire inspect: the fields of a frame, the sizes of its parts, and how close they are to the entropy bound.
#include <fmt/core.h>

#include <memory>
#include <string>

#include "commands.h"
#include "frame.h"
#include "options.h"
#include "sparsewire/codec.h"
#include "text/counted.h"

namespace sparsewire::cli {
namespace {

struct InspectOptions {
  std::string frame;
  std::optional<std::string> json;
};

std::string row(std::string_view field, const std::string& value) { return fmt::format("{:<16} {}\n", field, value); }

// How the indices compare with the best code for random indices. `seed` and `runs` can need less than that.
std::string distance_text(const FrameSizes& sizes) {
  const double bound = sizes.entropy_bound_index_bits;
  if (bound == 0) return "no indices are needed";
  const double percent = 100 * (sizes.index_bits_per_entry / bound - 1);
  return fmt::format("{:.3f} bits per entry for random indices; these take {:.2f} % {}", bound,
                     percent < 0 ? -percent : percent, percent < 0 ? "less" : "more");
}

bool has_parts(const NumberBytes& numbers) { return numbers.parameters + numbers.classes + numbers.rests > 0; }

// Where the bits of a section of numbers in blocks go.
std::string parts_text(const NumberBytes& numbers, std::uint64_t count) {
  if (!has_parts(numbers)) return "";
  const auto line = [&](std::string_view name, std::size_t bytes) {
    return row(name, fmt::format("{} bytes, {:.3f} bits per entry", grouped(bytes),
                                 8 * static_cast<double>(bytes) / static_cast<double>(count)));
  };
  return line("    parameters", numbers.parameters) + line("    classes", numbers.classes) +
         line("    rests", numbers.rests);
}

Json parts_json(const NumberBytes& numbers) {
  return {{"parameter_bytes", numbers.parameters}, {"class_bytes", numbers.classes}, {"rest_bytes", numbers.rests}};
}

std::string table(const FrameInfo& info) {
  const FrameSizes sizes(info);
  const double percent = info.dim == 0 ? 0 : 100 * static_cast<double>(info.count) / static_cast<double>(info.dim);
  const auto section = [](std::size_t bytes, double bits) {
    return fmt::format("{} bytes, {:.3f} bits per entry", grouped(bytes), bits);
  };
  return row("version", std::to_string(info.version)) +  //
         row("codec", info.codec) +                      //
         row("dim", grouped(info.dim)) +                 //
         row("kept", fmt::format("{} ({:.4g} %)", grouped(info.count), percent)) +
         row("frame", section(info.frame_bytes, sizes.bits_per_entry)) +
         row("  indices", section(info.index_bytes, sizes.index_bits_per_entry)) +
         parts_text(info.index_numbers, info.count) +
         row("  values", section(info.value_bytes, sizes.value_bits_per_entry)) +
         parts_text(info.value_numbers, info.count) +
         row("  header", fmt::format("{} bytes, {} bits", info.header_bytes, 8 * info.header_bytes)) +
         row("entropy bound", distance_text(sizes));
}

void inspect_file(const InspectOptions& options) {
  const std::string path = input_path(options.frame);
  check_distinct({{"the frame", path}, {"--json", options.json}});
  const files::Bytes frame = read_frame(path);
  FrameInfo info;
  check_frame(inspect(frame.span(), info), path);
  Json json = frame_json(info);
  json["version"] = info.version;
  if (has_parts(info.index_numbers)) json["index_parts"] = parts_json(info.index_numbers);
  if (has_parts(info.value_numbers)) json["value_parts"] = parts_json(info.value_numbers);
  Report report(options.json, json, table(info));
  report.print();
  report.commit();
}

}  // namespace

void add_inspect(CLI::App& program) {
  CLI::App* const command = program.add_subcommand("inspect", "Show the fields of a frame and the sizes of its parts");
  command->footer("Examples:\n  sparsewire inspect out.swf\n  sparsewire inspect out.swf --json -");
  const auto options = std::make_shared<InspectOptions>();
  command->add_option("FRAME", options->frame, "A frame, as compress writes it; - is standard input")
      ->required()
      ->type_name("");
  add_json(*command, options->json);
  command->callback([options] { inspect_file(*options); });
}

}  // namespace sparsewire::cli
