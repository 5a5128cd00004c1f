#include "train/checkpoint.h"

#include <filesystem>
#include <span>
#include <stdexcept>

#include "core/text.h"
#include "files/replace.h"
#include "train/checkpoint_files.h"
#include "train/together.h"

namespace sparsewire::train {
namespace {

namespace fs = std::filesystem;

void make_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) throw std::runtime_error(text("cannot write '", path, "': ", error.message()));
}

// Also where a kill left half of it: what has no manifest is no checkpoint, so the manifest goes first.
void remove_checkpoint(const std::string& path) {
  fs::remove(path + "/" + kManifestName);
  fs::remove_all(path);
}

}  // namespace

Checkpoints::Checkpoints(std::string folder, std::uint64_t keep, Transport& transport,
                         std::optional<std::uint64_t> last)
    : folder_(std::move(folder)), keep_(keep), transport_(transport), last_(last) {}

std::string Checkpoints::last_path() const { return checkpoint_path(folder_, last_.value()); }

void Checkpoints::write(const TrainConfig& config, RankState& mine) {
  const std::uint64_t step = mine.step;
  const std::string path = checkpoint_path(folder_, step);
  const bool leads = transport_.rank() == 0;
  together(transport_, [&] {
    if (!leads) return;
    remove_checkpoint(path);
    make_folder(path);
    files::sync_folder(folder_);
  });

  Json written;
  together(transport_, [&] { written = write_rank(path, transport_.rank(), mine); });
  const std::string bytes = written.dump();
  std::vector<std::vector<std::byte>> all;
  transport_.gather(0, std::as_bytes(std::span(bytes)), all);

  together(transport_, [&] {
    if (!leads) return;
    Manifest manifest{.path = path, .step = step, .workers = all.size(), .config = config, .files = Json::object()};
    for (const auto& one : all) {
      const auto* const begin = reinterpret_cast<const char*>(one.data());
      manifest.files.update(Json::parse(begin, begin + one.size()));
    }
    write_manifest(manifest);
    remove_others(step);
  });
  last_ = step;
}

// Later ones are those that a resumed training found damaged.
void Checkpoints::remove_others(std::uint64_t newest) const {
  std::uint64_t kept = 0;
  for (const std::uint64_t step : checkpoint_steps(folder_)) {
    const std::string path = checkpoint_path(folder_, step);
    if (step <= newest && kept < keep_ && has_manifest(path)) {
      ++kept;
    } else {
      remove_checkpoint(path);
    }
  }
}

}  // namespace sparsewire::train
