// Studies whose runs never happened: a real plan, and records with losses that a test chooses.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "loop/config.h"
#include "problems/problem.h"
#include "study/choice.h"
#include "study/plan.h"
#include "study/record.h"
#include "study/tables.h"

namespace sparsewire::study {

// The final loss of a run, on all data. It falls from 1, by half at each of 10 evaluations.
using LossOf = std::function<double(const Cell& cell, std::uint64_t seed)>;
// What is special about a run.
using Change = std::function<void(Record& record)>;

inline constexpr std::uint64_t kEvaluations = 10;

// A model of 300 weights on generated data.
inline Request small_request(std::vector<std::string> methods) {
  Request request;
  request.methods = std::move(methods);
  request.ratios = {"0.1"};
  request.lrs = {0.1, 0.3, 1};
  request.seeds = 3;
  request.config.problem = "logreg:samples=50,held_back=20";
  request.config.validation = 0.2;
  request.config.workers = 2;
  request.config.steps = 100;
  request.config.eval_every = 10;
  return request;
}

inline Plan made_up_plan(const Request& request) {
  const auto problem = train::make_problem(request.config.problem, train::problem_place(request.config));
  return make_plan(request, *problem);
}

// With that final loss; test loss and metric follow from it.
inline Record made_up_run(const Plan& plan, const char* phase, const Cell& cell, std::uint64_t seed, double loss) {
  Record run;
  run.phase = phase;
  run.cell = cell;
  run.seed = seed;
  run.config = plan.methods[cell.method_index].config(plan.config, cell);
  run.config.seed = seed;
  run.status = kFinished;
  run.steps = run.config.steps;
  run.id = run_id(run.config, phase, plan);
  double rest = 1;
  for (std::uint64_t i = 0; i <= kEvaluations; ++i, rest /= 2) {
    Point point;
    point.step = run.steps * i / kEvaluations;
    point.val_loss = point.train_loss = i == kEvaluations ? loss : loss + (1 - loss) * rest;
    point.test_loss = point.val_loss + 0.01;
    point.metric = 1 - point.val_loss / 2;
    point.bytes = point.step * (cell.k * 8 + seed % 3);
    point.paper_bits = point.step * cell.k * 64;
    run.curve.push_back(point);
  }
  const Point& last = run.curve.back();
  run.initial_train_loss = run.curve.front().train_loss;
  run.final_train_loss = last.train_loss;
  run.val_loss = last.val_loss;
  run.test_loss = last.test_loss;
  run.metric = run.val_metric = last.metric;
  run.totals.bytes_up = last.bytes / 4;
  run.totals.bytes_down = last.bytes - last.bytes / 4;
  run.totals.bytes_served = last.bytes / 2;
  run.totals.paper_bits_up = last.paper_bits / 4;
  run.totals.paper_bits_down = last.paper_bits - last.paper_bits / 4;
  run.totals.entries_up = run.totals.paper_bits_up / 64;
  run.totals.entries_down = run.totals.paper_bits_down / 64;
  run.totals.server_error = loss / 8;
  run.totals.total_error = loss / 2 + run.totals.server_error;
  run.totals.loss = loss;
  run.totals.peak_memory_norm2 = run.peak_memory_norm2 = loss * loss;
  run.weights_crc32c = 0x1234 + static_cast<std::uint32_t>(seed);
  run.seconds = 1.5;
  return run;
}

// Gradients that were not finite in step `step`: the run ends there.
inline void diverge(Record& run, std::uint64_t step) {
  run.status = kDiverged;
  run.diverged_at = run.steps = step;
  while (run.curve.size() > 1 && run.curve.back().step >= step) run.curve.pop_back();
  run.final_train_loss = run.val_loss = run.test_loss = run.metric = run.val_metric = kNotMeasured;
  run.totals.bytes_up = run.curve.back().bytes / 4;
  run.totals.bytes_down = run.curve.back().bytes - run.totals.bytes_up;
}

// All steps were done, and the loss is larger than at the start.
inline void climb(Record& run, double loss) {
  run.status = kDiverged;
  run.final_train_loss = run.val_loss = run.test_loss = run.curve.back().train_loss = run.curve.back().val_loss =
      run.curve.back().test_loss = loss;
}

// The runs that such a study would have: all cells on the tuning seeds, and what is chosen on the judging seeds.
inline Results made_up_study(
    const Plan& plan, const LossOf& loss_of, const Change& change = [](Record&) {}) {
  Results results{.plan = plan, .records = {}, .choices = {}};
  const auto add = [&](const char* phase, const Cell& cell, std::uint64_t seed) {
    Record run = made_up_run(plan, phase, cell, seed, loss_of(cell, seed));
    change(run);
    results.records.push_back(std::move(run));
  };
  for (const Cell& cell : plan.cells) {
    if (plan.methods[cell.method_index].needs_pilot()) {
      add(kPilot, cell, plan.tune_seeds.at(0));
      results.records.back().lambda = 0.125;
      results.records.back().curve.resize(1);
    }
    for (const std::uint64_t seed : plan.tune_seeds) add(kTune, cell, seed);
  }
  results.choices = choose(plan, results.records);
  for (const Choice& choice : results.choices) {
    if (!choice.cell) continue;
    for (const std::uint64_t seed : plan.seeds) add(kJudge, plan.cells[*choice.cell], seed);
  }
  return results;
}

}  // namespace sparsewire::study
