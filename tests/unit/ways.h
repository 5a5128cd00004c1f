// Every sparsifier over every exchange, with and without a downlink.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "exchange/bodies.h"
#include "unit/specs.h"

namespace sparsewire {

using SpecAndWay = std::tuple<std::string, bodies::Way>;

class EveryWay : public ::testing::TestWithParam<SpecAndWay> {
 protected:
  static const std::string& spec() { return std::get<0>(GetParam()); }
  static const bodies::Way& way() { return std::get<1>(GetParam()); }
  static bodies::Plan plan(const std::string& codec = "auto") { return bodies::plan_of(spec(), way(), codec); }
  // The engine's own all-reduce, be it by `auto`.
  static bool is_all_reduce() {
    return way().exchange == "dense" || (way().exchange == "auto" && name_of(spec()) == "dense");
  }
};

inline std::string spec_and_way_as_name(const ::testing::TestParamInfo<SpecAndWay>& info) {
  return name_of(std::get<0>(info.param)) + "_" + std::get<1>(info.param).name();
}

inline auto every_spec_and_way() {
  return ::testing::Combine(::testing::ValuesIn(example_specs()), ::testing::ValuesIn(bodies::every_way()));
}

}  // namespace sparsewire
