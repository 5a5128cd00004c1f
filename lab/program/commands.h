// The sub-commands, one file each. Each adds itself to the program; CLI11 calls the one that the user chose.
#pragma once

#include <CLI/CLI.hpp>

namespace sparsewire::cli {

void add_compare(CLI::App& program);
void add_compress(CLI::App& program);
void add_data(CLI::App& program);
void add_decompress(CLI::App& program);
void add_inspect(CLI::App& program);
void add_list(CLI::App& program);
void add_pilot(CLI::App& program);
void add_report(CLI::App& program);
void add_reproduce(CLI::App& program);
void add_study(CLI::App& program);
void add_train(CLI::App& program);

// Exit codes.
inline constexpr int kFailed = 1;
inline constexpr int kWrongUsage = 2;

// Ends this process without a message, since another one prints it.
class SilentFailure {
 public:
  explicit SilentFailure(int exit_code) : exit_code_(exit_code) {}
  int exit_code() const noexcept { return exit_code_; }

 private:
  int exit_code_;
};

}  // namespace sparsewire::cli
