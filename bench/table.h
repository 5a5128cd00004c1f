// The bars of a step and of a frame, in times `memory += gradient`, and whether this machine held them in this run.
#pragma once

#include <benchmark/benchmark.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench.h"
#include "grid.h"

namespace sparsewire::bench {

// Collects the times of every repetition, prints nothing.
class Times : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context& context) override;
  void ReportRuns(const std::vector<Run>& runs) override;

  // In milliseconds; none if the bench did not run.
  std::optional<double> median(const std::string& name) const;
  // The most that any bench had.
  std::size_t repetitions() const;

 private:
  std::map<std::string, std::vector<double>> samples_;
};

// A regular expression for the benches that the table needs.
std::string table_filter(std::size_t n);

// The machine, the floors, the bars, and what a second thread gives.
std::string table(const Times& times, const Bench& bench, Form form);

}  // namespace sparsewire::bench
