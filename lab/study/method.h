// A method of a study: a sparsifier, and behind a bar what else differs from the common settings.
//
//   topk
//   regtopk:mu=1/4                      two values of a parameter of its own: two cells for each learning rate
//   topk | downlink=topk codec=golomb:values=bf16 name=both_ways
//
// The ratio of a cell goes into the sparsifier and the downlink, unless they have one, or need none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "loop/config.h"

namespace sparsewire::study {

// One point of the grid: everything but the seed.
struct Cell {
  std::string method;            // Method::spec()
  std::size_t method_index = 0;  // in Plan::methods
  std::string ratio;             // as given; empty if the method takes none
  double lr = 0;
  std::map<std::string, std::string> own;  // those of its parameters that are lists, and the value in this cell
  std::uint64_t k = 0;                     // entries that a worker sends in a step: an expectation with a threshold
  std::uint64_t grown = 0;                 // 0: of the given grid; 1, 2: added by --grow

  bool operator==(const Cell&) const = default;
};

// A parameter with its values: "mu", {"1", "4"}. Those of other specs than the sparsifier are named after their option:
// "downlink.r", "clip".
struct OwnParameter {
  std::string name;
  std::vector<std::string> values;
};

// Puts measured thresholds in place of the ratios of thresholds that are to be measured.
void set_thresholds(train::TrainConfig& config, std::optional<double> lambda, std::optional<double> downlink_lambda);

class Method {
 public:
  // Throws UsageError.
  explicit Method(std::string_view text);

  const std::string& spec() const noexcept { return spec_; }  // as given, with single spaces
  const std::string& name() const noexcept { return name_; }  // for tables: name=..., otherwise the spec

  // Whether a ratio has to come from the cell.
  bool takes_ratio() const noexcept { return takes_ratio_; }
  // Whether a threshold is to be measured by a pilot.
  bool needs_pilot() const noexcept { return needs_pilot_; }
  // Learning rates of its own, instead of the plan's; empty: none.
  const std::vector<double>& lrs() const noexcept { return lrs_; }
  // Every combination of its own parameters that are lists: one that is empty if there are none.
  std::vector<std::map<std::string, std::string>> combinations() const;

  // The settings of a cell, thresholds not measured yet. `common` are the settings of the plan. A method with other
  // local_steps has as many steps of the optimiser, rounded down to whole exchanges; no exchange is later than the end.
  train::TrainConfig config(const train::TrainConfig& common, const Cell& cell) const;

 private:
  // A key of a spec and its values: more than one is a list.
  struct SettingPart {
    std::string key;  // empty: the value is the whole setting
    std::vector<std::string> values;
  };
  struct MethodSetting {
    std::string option;  // sparsifier, downlink, codec, ...
    std::string head;    // of a spec: its name
    std::vector<SettingPart> parts;
    bool takes_ratio = false;
  };
  void read_setting(const std::string& option, const std::string& value);
  void find_ratios();
  static std::string own_name(const MethodSetting& setting, const SettingPart& part);
  static std::string text_of(const MethodSetting& setting, const std::map<std::string, std::string>& own);

  std::string spec_;
  std::string name_;
  std::vector<MethodSetting> settings_;  // the sparsifier first
  std::vector<OwnParameter> own_;
  std::vector<double> lrs_;
  bool takes_ratio_ = false;
  bool needs_pilot_ = false;
};

}  // namespace sparsewire::study
