#include "train/checkpoint.h"

#include <fmt/core.h>

#include <filesystem>
#include <span>
#include <stdexcept>

#include "files/replace.h"
#include "train/checkpoint_files.h"
#include "train/run_or_fail.h"

namespace sparsewire::train {
namespace {

namespace fs = std::filesystem;

void make_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) throw std::runtime_error(fmt::format("cannot write '{}': {}", path, error.message()));
}

// Also where a kill left half of it: what has no manifest is no checkpoint, so the manifest goes first. What is not
// ours stays, and the folder with it.
void remove_checkpoint(const std::string& path) {
  std::error_code stays;  // nor is it a reason to stop a training if it cannot be removed
  fs::remove(path + "/" + kManifestName, stays);
  for (const auto& entry : fs::directory_iterator(path, stays)) {
    if (is_checkpoint_file(entry.path().filename().string())) fs::remove(entry.path(), stays);
  }
  fs::remove(path, stays);
}

}  // namespace

Checkpoints::Checkpoints(const TrainConfig& config, std::string data, Transport& transport,
                         std::optional<std::uint64_t> last)
    : config_(config), data_(std::move(data)), transport_(transport), last_(last) {}

std::string Checkpoints::last_path() const { return checkpoint_path(config_.checkpoint_dir, last_.value()); }

void Checkpoints::write(RankState& mine) {
  const std::uint64_t step = mine.step;
  const std::string path = checkpoint_path(config_.checkpoint_dir, step);
  const bool is_root = transport_.rank() == 0;
  run_or_fail_on_all(transport_, [&] {
    if (!is_root) return;
    remove_checkpoint(path);
    make_folder(path);
    files::sync_folder(config_.checkpoint_dir);
  });

  Json written;
  run_or_fail_on_all(transport_, [&] { written = write_rank(path, transport_.rank(), mine); });
  const std::string bytes = written.dump();
  std::vector<std::vector<std::byte>> all;
  transport_.gather(0, std::as_bytes(std::span(bytes)), all);

  run_or_fail_on_all(transport_, [&] {
    if (!is_root) return;
    Manifest manifest{
        .path = path, .step = step, .workers = all.size(), .config = config_, .data = data_, .files = Json::object()};
    for (const auto& one : all) {
      const auto* const begin = reinterpret_cast<const char*>(one.data());
      manifest.files.update(Json::parse(begin, begin + one.size()));
    }
    check_all_here(manifest);
    write_manifest(manifest);
    remove_others(step);
  });
  last_ = step;
}

// Later ones are those that a resumed training found damaged.
void Checkpoints::remove_others(std::uint64_t newest) const {
  std::uint64_t kept = 0;
  for (const std::uint64_t step : checkpoint_steps(config_.checkpoint_dir)) {
    const std::string path = checkpoint_path(config_.checkpoint_dir, step);
    if (step <= newest && kept < config_.keep && has_manifest(path)) {
      ++kept;
    } else {
      remove_checkpoint(path);
    }
  }
}

}  // namespace sparsewire::train
