// Every sparsifier over every exchange, with and without a downlink.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "exchange/bodies.h"
#include "unit/specs.h"

namespace sparsewire {

using SpecAndCase = std::tuple<std::string, bodies::ExchangeCase>;

class EveryExchangeCase : public ::testing::TestWithParam<SpecAndCase> {
 protected:
  static const std::string& spec() { return std::get<0>(GetParam()); }
  static const bodies::ExchangeCase& exchange_case() { return std::get<1>(GetParam()); }
  static bodies::Plan plan(const std::string& codec = "auto") {
    return bodies::plan_of(spec(), exchange_case(), codec);
  }
  // Whether the update comes from the transport's all-reduce, also if `auto` chose that.
  static bool is_all_reduce() {
    return exchange_case().exchange == "dense" || (exchange_case().exchange == "auto" && name_of(spec()) == "dense");
  }
};

inline std::string spec_and_case_as_name(const ::testing::TestParamInfo<SpecAndCase>& info) {
  return name_of(std::get<0>(info.param)) + "_" + std::get<1>(info.param).name();
}

// Under sanitizers the sparsifiers that have something to say to an exchange: those that observe the update, or measure
// a threshold of all ranks.
inline std::vector<std::string> specs_for_exchanges() {
  std::vector<std::string> specs = example_specs();
  if (kSlowBuild) {
    std::erase_if(specs, [](const std::string& spec) {
      return name_of(spec) == "dense" || name_of(spec) == "randomk" || name_of(spec) == "rtopk";
    });
  }
  return specs;
}

inline auto every_spec_and_case() {
  return ::testing::Combine(::testing::ValuesIn(specs_for_exchanges()),
                            ::testing::ValuesIn(bodies::every_exchange_case()));
}

}  // namespace sparsewire
