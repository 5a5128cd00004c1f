// sparsewire decompress: a frame back into a dense vector, or into its entries.
#include <fmt/core.h>

#include <array>
#include <memory>
#include <span>
#include <string>

#include "commands.h"
#include "files/input.h"
#include "files/npy.h"
#include "files/replace.h"
#include "frame.h"
#include "options.h"
#include "sparsewire/codec.h"
#include "sparsewire/errors.h"
#include "text/counted.h"

namespace sparsewire::cli {
namespace {

struct DecompressOptions {
  std::string frame;
  std::string output;
  bool sparse = false;
  std::optional<std::string> json;
};

// Written entry by entry: a frame of 40 bytes may stand for 2^32 numbers, which must not be held in memory.
void write_dense(const SparseVector& vector, files::Replacement& file) {
  files::write_npy_header(file, "<f4", std::array{vector.dim});
  std::uint64_t next = 0;
  for (std::size_t i = 0; i < vector.size(); ++i) {
    const std::uint64_t index = vector.index(i);
    file.skip((index - next) * sizeof(float));
    file.write(std::as_bytes(std::span(&vector.values[i], 1)));
    next = index + 1;
  }
  file.skip((vector.dim - next) * sizeof(float));
}

void write_indices(const SparseVector& vector, files::Replacement& file) {
  files::write_npy_header(file, "<u4", std::array{std::uint64_t{vector.size()}});
  for (std::size_t i = 0; i < vector.size(); ++i) {
    const std::uint32_t index = vector.index(i);
    file.write(std::as_bytes(std::span(&index, 1)));
  }
}

std::string stem_of(const std::string& output) {
  return output.ends_with(".npy") ? output.substr(0, output.size() - 4) : output;
}

void decompress(const DecompressOptions& options) {
  ignore_broken_outputs();
  const std::string path = input_path(options.frame);
  const std::string output = output_path(options.output);
  const std::string indices_path = stem_of(output) + ".indices.npy";
  const std::string values_path = stem_of(output) + ".values.npy";
  if (options.sparse) {
    if (files::is_standard_output(output))
      throw UsageError("--sparse writes two files: give --output a name, not standard output");
    check_distinct(
        {{"the frame", path}, {"the indices", indices_path}, {"the values", values_path}, {"--json", options.json}});
  } else {
    check_distinct({{"the frame", path}, {"--output", output}, {"--json", options.json}});
  }

  const files::Bytes frame = read_frame(path);
  SparseVector vector;
  check_frame(decode(frame.span(), vector), path);
  FrameInfo info;
  check_frame(inspect(frame.span(), info), path);
  const bool prints = !files::is_standard_output(output);
  Json json{{"dim", info.dim}, {"kept", info.count}, {"frame_bytes", info.frame_bytes}, {"codec", info.codec}};

  if (!options.sparse) {
    files::Replacement file(output);
    write_dense(vector, file);
    file.prepare();
    json["files"] = {output};
    Report report(options.json, json,
                  prints ? fmt::format("wrote {} entries, {} of them from the frame, to '{}'\n", grouped(info.dim),
                                       grouped(info.count), output)
                         : "");
    report.print();
    file.commit();
    report.commit();
    return;
  }
  files::Replacement indices(indices_path);
  write_indices(vector, indices);
  indices.prepare();
  files::Replacement values(values_path);
  files::write_npy(values, vector.values, std::array{std::uint64_t{vector.size()}});
  values.prepare();
  json["files"] = {indices_path, values_path};
  Report report(options.json, json,
                fmt::format("wrote {} of {} entries to '{}' and '{}'\n", grouped(info.count), grouped(info.dim),
                            indices_path, values_path));
  report.print();
  indices.commit();
  values.commit();
  report.commit();
}

}  // namespace

void add_decompress(CLI::App& program) {
  CLI::App* const command = program.add_subcommand("decompress", "Decode a frame into a .npy file");
  command->footer(
      "Examples:\n"
      "  sparsewire decompress out.swf -o out.npy\n"
      "  sparsewire decompress out.swf -o out.npy --sparse\n"
      "    (writes out.indices.npy and out.values.npy)");
  const auto options = std::make_shared<DecompressOptions>();
  command->add_option("FRAME", options->frame, "A frame, as compress writes it; - is standard input")
      ->required()
      ->type_name("");
  command->add_option("-o,--output", options->output, "The vector: float32, one dimension; - is standard output")
      ->required()
      ->type_name("OUT.npy");
  command->add_flag("--sparse", options->sparse,
                    "Write only the entries of the frame, to OUT.indices.npy and OUT.values.npy");
  add_json(*command, options->json);
  command->callback([options] { decompress(*options); });
}

}  // namespace sparsewire::cli
