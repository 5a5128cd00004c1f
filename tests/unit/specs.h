// Specs of every sparsifier: the examples of the registry, and special cases.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "effort.h"
#include "sparsewire/sparsifier.h"

namespace sparsewire {

// The examples of the registry, one for each sparsifier.
inline std::vector<std::string> example_specs() {
  std::vector<std::string> specs;
  for (const SparsifierInfo& info : sparsifiers()) specs.emplace_back(info.example);
  return specs;
}

// And with other keys; under sanitizers only those that take another path through the code.
inline std::vector<std::string> every_spec() {
  std::vector<std::string> specs = example_specs();
  specs.insert(specs.end(), {"topk:ratio=0.5", "topk:ratio=0.3,chunk=1000", "randomk:ratio=0.6,seed=99",
                             "rtopk:ratio=0.02,r_ratio=0.2", "threshold:lambda=0", "threshold:ratio=0.05,calibrate=2",
                             "threshold:ratio=0.04,rule=sqrt", "regtopk:ratio=0.1,mu=4,form=b"});
  if (kSlowBuild) return specs;
  specs.insert(
      specs.end(),
      {"topk:ratio=0.001", "topk:ratio=1", "topk:ratio=0.02,chunk=64", "topk:ratio=0.05,warmup_from=0.5,warmup_steps=3",
       "randomk:ratio=0.02", "randomk:ratio=1", "randomk:ratio=0.1,shared=true,warmup_from=0.9,warmup_steps=2",
       "rtopk:ratio=0.02", "rtopk:ratio=0.05,r=3.5", "rtopk:ratio=0.4,r=1", "rtopk:ratio=0.1,r_ratio=1",
       "threshold:lambda=0.5", "regtopk:ratio=0.05,mu=1", "regtopk:ratio=0.02,mu=0.5,q=0.3,weight=0.7"});
  return specs;
}

// topk:ratio=0.01 -> topk_ratio_0_01
inline std::string spec_as_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

inline std::string name_of(const std::string& spec) { return spec.substr(0, spec.find(':')); }

// The spec with one more key.
inline std::string with(const std::string& spec, const std::string& key_and_value) {
  return spec + (spec.find(':') == std::string::npos ? ":" : ",") + key_and_value;
}

}  // namespace sparsewire
