// Writes studies whose runs never happened, with everything that is hard to judge in them, each into a folder of its
// own: lab/tests/check_study_test.py computes them again.
//
//   study_cases FOLDER
#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <string>

#include "study/tables.h"
#include "text/json.h"
#include "unit/made_up_study.h"

namespace sparsewire::study {
namespace {

constexpr const char* kMetricName = "test_accuracy";

void write_text(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

void write_run(const std::string& folder, const Record& run) {
  std::filesystem::create_directories(folder);
  std::string lines;
  for (std::size_t i = 1; i < run.curve.size(); ++i) {
    const Point& point = run.curve[i];
    const Json line{{"step", point.step},
                    {"train_loss", point.train_loss},
                    {"validation_loss", point.val_loss},
                    {"test_loss", point.test_loss},
                    {kMetricName, point.metric},
                    {"total_bytes_up", point.bytes / 4},
                    {"total_bytes_down", point.bytes - point.bytes / 4},
                    {"paper_bits_up", point.paper_bits / 4},
                    {"paper_bits_down", point.paper_bits - point.paper_bits / 4}};
    lines += train::shown(line) + '\n';
  }
  write_text(folder + "/metrics.jsonl", lines);
  write_record(folder, run, kMetricName);
}

void write_study(const std::string& folder, const Results& results) {
  std::filesystem::create_directories(folder);
  for (const Record& run : results.records) write_run(folder + "/runs/" + run.id, run);
  write_text(folder + "/plan.json", to_json(results.plan).dump(2) + '\n');
  write_text(folder + "/summary.json", summary_json(results).dump(2) + '\n');
  write_text(folder + "/summary.md", summary_markdown(results));
  write_text(folder + "/summary.tex", summary_latex(results));
  write_text(folder + "/summary.txt", summary_text(results));
  write_text(folder + "/runs.csv", runs_csv(results));
  write_text(folder + "/timings.csv", timings_csv(results));
}

// In [0, 1), and different for every cell and seed.
double noise(const Cell& cell, std::uint64_t seed) {
  const double x = static_cast<double>(cell.k % 97 + 1) * 0.754877666 +
                   static_cast<double>(cell.method_index) * 0.3247 + static_cast<double>(seed) * 0.56984029 +
                   cell.lr * 0.1;
  return x - std::floor(x);
}

// Best at 0.3; a little worse with fewer entries.
double usual_loss(const Cell& cell, std::uint64_t seed) {
  return 0.25 + 0.05 * std::fabs(cell.lr - 0.3) + 0.001 * static_cast<double>(300 - cell.k) / 300 +
         0.002 * noise(cell, seed);
}

Request usual_request() {
  Request request = small_request({"dense", "topk", "randomk", "topk | downlink=topk name=both"});
  request.ratios = {"0.05", "0.2"};
  request.seeds = 5;
  return request;
}

bool is_judged(const Record& run, const std::string& method, std::uint64_t seed) {
  return run.phase == kJudge && run.cell.method == method && run.seed == seed;
}

void write_all(const std::string& folder) {
  const auto write = [&](
                         const std::string& name, const Request& request, const LossOf& loss = usual_loss,
                         const Change& change = [](Record&) {}) {
    const Plan plan = made_up_plan(request);
    write_study(folder + "/" + name, made_up_study(plan, loss, change));
  };
  write("usual", usual_request());
  write("ties", usual_request(),
        [](const Cell& cell, std::uint64_t seed) { return cell.method == "randomk" && seed == 1 ? 0.3 : 0.1; });
  write("diverged_judging_seed", usual_request(), usual_loss, [](Record& run) {
    if (is_judged(run, "topk", 2)) diverge(run, 35);
    if (is_judged(run, "randomk", 1) || is_judged(run, "randomk", 3) || is_judged(run, "randomk", 4)) climb(run, 1.25);
  });
  write("diverged_baseline", usual_request(), usual_loss, [](Record& run) {
    if (is_judged(run, "dense", 4)) diverge(run, 5);
    if (is_judged(run, "topk", 4)) diverge(run, 95);
  });
  write("diverged_tuning", usual_request(), usual_loss, [](Record& run) {
    if (run.phase == kTune && run.cell.lr == 0.3 && run.cell.method == "topk" && run.seed % 2 == 0) climb(run, 1.0625);
    if (run.phase == kTune && run.cell.method == "randomk") diverge(run, 15);
  });
  // Targets that some runs, or none, reach.
  Request target = usual_request();
  target.target = 0.2685;
  write("censored", target, [](const Cell& cell, std::uint64_t seed) {
    return usual_loss(cell, seed) + (cell.method == "randomk" ? 0.05 : 0.02 * noise(cell, seed + 1));
  });
  target.seeds = 4;
  target.target = 0.27;
  write("censored_even", target,
        [](const Cell& cell, std::uint64_t seed) { return 0.25 + 0.01 * static_cast<double>(seed % 4) + 0 * cell.lr; });
  Request one = usual_request();
  one.seeds = 1;
  write("one_seed", one);
  Request two = small_request({"dense", "topk"});
  two.seeds = 2;
  write("two_methods_two_seeds", two);
  Request merged = usual_request();
  merged.ratios = {"0.1", "0.1001", "0.2", "0.2003"};
  write("merged", merged);
  Request own = usual_request();
  own.methods = {"dense | lr=0.01/0.03/0.1/0.3/1/3", "regtopk:mu=1/4", "topk | feedback=ef/none"};
  write("own_parameters", own, [](const Cell& cell, std::uint64_t seed) {
    return usual_loss(cell, seed) + (cell.own.contains("mu") && cell.own.at("mu") == "1" ? 0.01 : 0);
  });
  Request untuned = usual_request();
  untuned.tune_seeds = 0;
  untuned.lrs = {0.3};
  write("untuned", untuned);
  Request accuracy = usual_request();
  accuracy.primary = "metric";
  write("accuracy", accuracy, usual_loss, [](Record& run) {
    if (is_judged(run, "topk", 2)) diverge(run, 35);
  });
  accuracy.tuned_by = kValMetric;
  write("tuned_by_accuracy", accuracy, usual_loss, [](Record& run) { run.val_metric -= run.cell.lr; });
  Request cosine = usual_request();
  cosine.config.schedule = "cosine";
  write("cosine", cosine);
  cosine.budget_bytes = 60'000;
  write("budget", cosine);
  Request by_ratio = usual_request();
  by_ratio.baseline = "topk";
  write("baseline_with_ratios", by_ratio);
  Request pilots = small_request({"dense", "threshold"});
  write("pilots", pilots);
  const Plan plan = made_up_plan(usual_request());
  Results unfinished = made_up_study(plan, usual_loss);
  std::erase_if(unfinished.records,
                [](const Record& run) { return run.phase == kJudge && run.seed + run.cell.method_index > 3; });
  write_study(folder + "/unfinished", unfinished);
  Results tuning = made_up_study(plan, usual_loss);
  std::erase_if(tuning.records, [](const Record& run) { return run.phase == kJudge || run.cell.method_index > 1; });
  tuning.choices = choose(plan, tuning.records);
  write_study(folder + "/still_tuning", tuning);
}

}  // namespace
}  // namespace sparsewire::study

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: study_cases FOLDER\n", stderr);
    return 2;
  }
  try {
    sparsewire::study::write_all(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
