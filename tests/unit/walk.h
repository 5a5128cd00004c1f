// Runs a sparsifier for several steps with its memory, records every step, and compares them with the reference.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "reference/half.h"
#include "reference/inputs.h"
#include "reference/reference.h"
#include "sparsewire/sparsifier.h"
#include "unit/bare_sparsifier.h"
#include "unit/bits.h"
#include "unit/machines.h"

namespace sparsewire {

using reference::Numbers;

struct Walk {
  std::string spec;
  SifterContext context;                           // its pool is replaced by that of the Machine
  std::vector<kernels::ScaledGradient> gradients;  // borrowed
};

struct Step {
  SparseVector out;
  double accumulated_norm2 = 0;
  Numbers memory;  // after the step
};

inline std::vector<kernels::ScaledGradient> borrow(const std::vector<Numbers>& gradients, float scale = 1,
                                                   float decay = 1) {
  std::vector<kernels::ScaledGradient> borrowed;
  for (const Numbers& numbers : gradients) {
    kernels::ScaledGradient gradient = Gradient(numbers);
    gradient.scale = scale;
    gradient.decay = decay;
    borrowed.push_back(gradient);
  }
  return borrowed;
}

inline reference::Setting plain(const SifterContext& context) {
  reference::Setting setting;
  for (const TensorRange& tensor : context.layout.tensors()) setting.tensors.push_back(tensor.size);
  setting.by_layer = context.scope == Scope::layer;
  setting.rank = context.rank;
  setting.ranks = context.ranks;
  setting.weight = context.weight;
  setting.seed = context.seed;
  setting.first_step = context.first_step;
  setting.role = static_cast<std::uint32_t>(context.role);
  return setting;
}

// Tensors of these sizes, named t0, t1, ...
inline Layout layout_of(const std::vector<std::uint64_t>& sizes) {
  std::vector<TensorRange> tensors;
  for (std::size_t i = 0; i < sizes.size(); ++i) tensors.push_back({"t" + std::to_string(i), sizes[i], 0});
  return Layout(std::move(tensors));
}

// A possible update of all workers: entries that the others cancelled, did not send, sent too, or reversed.
inline Numbers made_up_update(const SparseVector& sent, const SifterContext& context) {
  const float weight = 1.0F / static_cast<float>(context.ranks);
  const float factors[] = {0.0F, weight, 1.0F, -0.3F};
  Numbers update;
  for (std::size_t i = 0; i < sent.size(); ++i) update.push_back(factors[i % 4] * sent.values[i]);
  return update;
}

inline std::vector<Step> record(const Walk& walk, const Machine& machine) {
  const AtLevel level(machine.simd);
  SifterContext context = walk.context;
  context.pool = pool_of(machine.threads);
  const std::unique_ptr<BareSparsifier> sparsifier = make_bare(walk.spec, context);
  Numbers memory(context.layout.dim());
  SparseVector out;
  std::vector<Step> steps;
  for (const kernels::ScaledGradient& gradient : walk.gradients) {
    const double accumulated_norm2 = sparsifier->sift(gradient, memory, out);
    steps.push_back({out, accumulated_norm2, memory});
    sparsifier->observe(out, made_up_update(out, context));
  }
  return steps;
}

// Conservation: the value of every entry is either in `out` or in `memory`, unchanged.
inline void expect_conserved(const Numbers& accumulated, const SparseVector& out, const Numbers& memory) {
  ASSERT_EQ(out.dim, accumulated.size());
  Numbers sum = memory;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint32_t index = out.index(i);
    ASSERT_LT(index, out.dim);
    if (i > 0) {
      ASSERT_LT(out.index(i - 1), index) << "indices ascend";
    }
    ASSERT_EQ(bits_of(memory[index]), 0U) << "index " << index << " was sent and stayed";
    sum[index] = out.values[i];
  }
  EXPECT_TRUE(same_bits(accumulated, sum));
}

// Scores may differ in their last bits, so that of two entries with almost equal scores either may be sent. Checks that
// in each unit the right number is sent, and that no score sent is more than 4 ulp below one that is not sent.
inline void expect_chosen_by_score(const reference::Round& expected, const SparseVector& out) {
  const std::vector<std::uint32_t>& wanted = expected.out.indices;
  std::vector<std::uint32_t> instead;
  std::vector<std::uint32_t> missing;
  std::set_difference(out.indices.begin(), out.indices.end(), wanted.begin(), wanted.end(),
                      std::back_inserter(instead));
  std::set_difference(wanted.begin(), wanted.end(), out.indices.begin(), out.indices.end(),
                      std::back_inserter(missing));
  ASSERT_EQ(instead.size(), missing.size());
  for (const reference::Unit& unit : expected.units) {
    const auto in_unit = [&](std::uint32_t i) {
      return std::binary_search(unit.entries.begin(), unit.entries.end(), i);
    };
    ASSERT_EQ(std::count_if(instead.begin(), instead.end(), in_unit),
              std::count_if(missing.begin(), missing.end(), in_unit));
    for (const std::uint32_t i : instead) {
      for (const std::uint32_t j : missing) {
        if (!in_unit(i) || !in_unit(j)) continue;
        ASSERT_NE(expected.accumulated[i], 0) << "index " << i;
        const double slack = 4 * (0x1p-23 * double{expected.scores[j]} + 0x1p-149);
        ASSERT_GE(double{expected.scores[i]}, double{expected.scores[j]} - slack)
            << "index " << i << " was taken instead of " << j;
      }
    }
  }
}

// Compares a step of the library with a step of the reference that started from the same memory.
inline void expect_step(const reference::Round& expected, const Step& step) {
  if (expected.scores.empty()) {
    ASSERT_TRUE(same_bits(expected.out, step.out));
  } else {
    ASSERT_NO_FATAL_FAILURE(expect_chosen_by_score(expected, step.out));
  }
  ASSERT_NO_FATAL_FAILURE(expect_conserved(expected.accumulated, step.out, step.memory));
  EXPECT_NEAR(step.accumulated_norm2, expected.accumulated_norm2, 1e-12 * expected.accumulated_norm2);
}

inline void expect_reference(const Walk& walk, const std::vector<Step>& steps) {
  const std::unique_ptr<reference::Reference> slow = reference::make(walk.spec, plain(walk.context));
  Numbers memory(walk.context.layout.dim());
  for (std::size_t t = 0; t < steps.size(); ++t) {
    SCOPED_TRACE("step " + std::to_string(t));
    const kernels::ScaledGradient& gradient = walk.gradients[t];
    const reference::Round round = slow->sift(reference::widen(gradient), memory, gradient.scale, gradient.decay);
    ASSERT_NO_FATAL_FAILURE(expect_step(round, steps[t]));
    slow->observe(steps[t].out, made_up_update(steps[t].out, walk.context));
    memory = steps[t].memory;
  }
}

inline void expect_same_bits(const std::vector<Step>& expected, const std::vector<Step>& actual) {
  for (std::size_t t = 0; t < expected.size(); ++t) {
    SCOPED_TRACE("step " + std::to_string(t));
    ASSERT_TRUE(same_bits(expected[t].out, actual[t].out));
    ASSERT_TRUE(same_bits(expected[t].memory, actual[t].memory));
    ASSERT_TRUE(same_bits(expected[t].accumulated_norm2, actual[t].accumulated_norm2));
  }
}

// Checks that the walk agrees with the reference on `on.front()`, and gives the same bits on the other machines.
inline void check(const Walk& walk, const std::vector<Machine>& on = machines()) {
  SCOPED_TRACE(walk.spec);
  const std::vector<Step> steps = record(walk, on.front());
  ASSERT_NO_FATAL_FAILURE(expect_reference(walk, steps));
  for (std::size_t i = 1; i < on.size(); ++i) {
    SCOPED_TRACE(on[i]);
    ASSERT_NO_FATAL_FAILURE(expect_same_bits(steps, record(walk, on[i])));
  }
}

// Checks a walk over one input of the catalogue.
inline void check_input(const std::string& spec, const reference::Input& input, SifterContext context, int steps,
                        const std::vector<Machine>& on = machines()) {
  constexpr std::uint64_t kSeed = 20240731;
  const std::size_t n = context.layout.dim();
  SCOPED_TRACE("input " + input.name + ", n " + std::to_string(n) + ", seed " + std::to_string(kSeed));
  const std::vector<Numbers> gradients = reference::sequence(input, n, steps, kSeed);
  check({spec, std::move(context), borrow(gradients)}, on);
}

}  // namespace sparsewire
