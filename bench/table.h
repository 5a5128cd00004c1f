// The table of target times for steps and frames, as multiples of `memory += gradient`, and whether this run met them.
#pragma once

#include <benchmark/benchmark.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench.h"
#include "grid.h"

namespace sparsewire::bench {

// Collects the times of all repetitions; prints nothing.
class Times : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context& context) override;
  void ReportRuns(const std::vector<Run>& runs) override;

  // The median time in milliseconds; nothing if the bench did not run.
  std::optional<double> median(const std::string& name) const;
  // The median of a counter of the bench.
  std::optional<double> median(const std::string& name, const std::string& counter) const;
  // The largest number of repetitions of any bench.
  std::size_t repetitions() const;

 private:
  std::map<std::string, std::vector<double>> samples_;
};

// A regular expression for the benches that the table needs.
std::string table_filter(std::size_t n);

// The machine, the reference times, the targets, and the speed-up by a second thread.
std::string table(const Times& times, const Bench& bench, Form form);

}  // namespace sparsewire::bench
