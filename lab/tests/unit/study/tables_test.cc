// The files of a study and the printed tables.
#include "study/tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "study/judge.h"
#include "study/references.h"
#include "unit/made_up_study.h"

namespace sparsewire::study::tables_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

double some_loss(const Cell& cell, std::uint64_t seed) {
  return 0.25 + cell.lr / 64 + static_cast<double>(seed % 5 * (cell.method_index + 1)) / 1024;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::size_t longest(const std::string& text) {
  std::size_t most = 0;
  for (const std::string& line : lines_of(text)) most = std::max(most, line.size());
  return most;
}

TEST(Tables, DoNotDependOnTheOrderOfRuns) {
  Request request = small_request({"dense", "threshold", "topk | downlink=topk"});
  request.ratios = {"0.1", "0.2"};
  const Plan plan = made_up_plan(request);
  const Results results = made_up_study(plan, some_loss);
  Results reversed = results;
  std::reverse(reversed.records.begin(), reversed.records.end());
  for (Record& run : reversed.records) run.seconds *= 2;
  EXPECT_EQ(runs_csv(results), runs_csv(reversed));
  EXPECT_EQ(summary_json(results).dump(), summary_json(reversed).dump());
  EXPECT_EQ(summary_markdown(results), summary_markdown(reversed));
  EXPECT_EQ(summary_latex(results), summary_latex(reversed));
  EXPECT_EQ(summary_text(results), summary_text(reversed));
  EXPECT_NE(timings_csv(results), timings_csv(reversed)) << "times are here, and only here";
}

TEST(RunsCsv, HasTheColumnsOfThePage) {
  const Plan plan = made_up_plan(small_request({"dense", "topk"}));
  const std::vector<std::string> lines = lines_of(runs_csv(made_up_study(plan, some_loss)));
  ASSERT_EQ(lines.size(), 1u + 2 * 3 * 2 + 2 * 3);
  EXPECT_EQ(
      lines[0],
      "id,phase,method,ratio,own,seed,problem,device,tf32,validation,split,workers,worker_weights,sparsifier,feedback,"
      "exchange,"
      "downlink,codec,downlink_codec,downlink_feedback,scope,average,optimiser,lr,schedule,clip,local_steps,outer_lr,"
      "outer_momentum,eval_every,eval_train,measure_every,k,status,diverged_at,steps,initial_train_loss,train_loss,val_"
      "loss,test_loss,metric,"
      "val_metric,"
      "bytes_up,"
      "bytes_down,bytes_served,paper_bits_up,paper_bits_down,reached,bytes_to_target,steps_to_target,censored_at,"
      "worker_error,server_error,peak_memory_norm2,weights_crc32c");
  EXPECT_THAT(lines[1], HasSubstr(",tune,dense,,,1000,\"logreg:samples=50,held_back=20\",cpu,on,0.2,"));
  EXPECT_THAT(lines.back(), HasSubstr(",judge,topk,0.1,,2,"));
}

TEST(RunsCsv, LeavesOutWhatThereIsNot) {
  const Plan plan = made_up_plan(small_request({"dense", "topk | name=a,\"b\""}));
  const Results results = made_up_study(plan, some_loss, [](Record& run) {
    if (run.phase == kJudge && run.cell.method_index == 1 && run.seed == 2) diverge(run, 40);
  });
  const std::string last = lines_of(runs_csv(results)).back();
  EXPECT_THAT(last, HasSubstr(",\"topk | name=a,\"\"b\"\"\",")) << "quoted as CSV wants it";
  EXPECT_THAT(last, HasSubstr(",30,diverged,40,40,1,,,,,")) << "no losses";
  EXPECT_THAT(last, HasSubstr(",false,,,7260,")) << "the target was not reached: censored";
}

TEST(TimingsCsv, HasALineForEachRun) {
  const Plan plan = made_up_plan(small_request({"topk"}));
  const std::vector<std::string> lines = lines_of(timings_csv(made_up_study(plan, some_loss)));
  EXPECT_EQ(lines[0], "id,phase,method,ratio,own,lr,seed,steps,seconds");
  EXPECT_EQ(lines.size(), 1u + 3 * 2 + 3);
  EXPECT_THAT(lines[1], HasSubstr(",tune,topk,0.1,,0.1,1000,100,1.5"));
}

TEST(SummaryJson, HasTheFieldsOfThePage) {
  const Plan plan = made_up_plan(small_request({"dense", "topk"}));
  const Json summary = summary_json(made_up_study(plan, some_loss));
  std::vector<std::string> keys;
  for (const auto& [key, value] : summary.items()) keys.push_back(key);
  EXPECT_THAT(keys, ElementsAre("schema", "plan", "environment", "intervals", "notes", "target", "equal_bytes", "grid",
                                "methods"));
  keys.clear();
  const Json& topk = summary["methods"][1];
  for (const auto& [key, value] : topk.items()) keys.push_back(key);
  EXPECT_THAT(keys, ElementsAre("spec", "name", "ratio", "chosen", "at_edge", "cells_tried", "n", "diverged",
                                "measures", "vs_baseline", "to_target", "sent_of_asked", "equal_bytes", "pilot"));
  EXPECT_EQ(topk["ratio"], 0.1);
  EXPECT_EQ(topk["at_edge"], Json({{"lr", "low"}}));
  EXPECT_EQ(topk["chosen"].dump(), R"({"lr":0.1,"own":{},"k":30})");
  EXPECT_TRUE(summary["methods"][0]["vs_baseline"].is_null());
  EXPECT_EQ(summary["grid"].size(), 6u);
}

// Long names, many digits, everything that adds a note.
Results wide_study(const Plan& plan) {
  return made_up_study(
      plan, [](const Cell& cell, std::uint64_t seed) { return some_loss(cell, seed) * 1e-3; },
      [](Record& run) {
        if (run.phase == kJudge && run.cell.method_index == 1 && run.seed == 0) diverge(run, 40);
        if (run.phase == kJudge && run.cell.method_index == 2 && run.seed < 2) diverge(run, 40);
        if (run.phase == kTune && run.cell.method_index == 3) diverge(run, 40);
        run.totals.bytes_down += run.cell.method_index == 4 ? 123'456'789'012'345'678 : 0;
        run.totals.total_error *= 1e200;
      });
}

// A note is wrapped: all white space becomes one space.
std::string joined_lines(const std::string& text) {
  std::string joined;
  for (const char c : text) {
    const bool is_space = c == '\n' || c == ' ';
    if (!is_space || !joined.ends_with(' ')) joined += is_space ? ' ' : c;
  }
  return joined;
}

Request wide_request() {
  const std::string name(100, 'n');
  Request request = small_request({"dense | codec=golomb:values=bf16",
                                   "regtopk:mu=4 | downlink=topk codec=golomb:values=bf16 feedback=ef:decay=0.95",
                                   "randomk", "rtopk:r=4", "topk | name=" + name, "threshold"});
  request.ratios = {"0.1", "0.3333333333", "0.33334"};
  request.lrs = {0.00012345, 0.3, 1};
  return request;
}

TEST(SummaryText, Fits80Columns) {
  const Plan plan = made_up_plan(wide_request());
  const std::string text = summary_text(wide_study(plan));
  EXPECT_LE(longest(text), 80u) << text;
  EXPECT_THAT(text, AllOf(HasSubstr("nnnnnnnnnnnn\n"), HasSubstr("2 of 3 runs diverged"), HasSubstr("median")));
  EXPECT_THAT(text, HasSubstr("target not reached, 2 of 3, censored at"));
  EXPECT_THAT(text, HasSubstr("ratio 0.33334 is left out"));
  EXPECT_THAT(text, HasSubstr("no setting could be chosen"));
  EXPECT_THAT(text, HasSubstr("its pilot moved"));
}

TEST(SummaryText, SaysWhichThresholdSentTooMuch) {
  const Plan plan = made_up_plan(small_request({"threshold"}));
  const auto text_if = [&](double rest_sends) {
    const auto loss = [](const Cell& cell, std::uint64_t) { return 0.5 - cell.lr / 8; };  // 1 is best
    const std::string text = summary_text(made_up_study(plan, loss, [&](Record& run) {
      const double times = run.cell.lr == 1 ? 43 : rest_sends;
      const std::uint64_t asked = run.cell.k * run.steps * run.config.workers;
      run.totals.entries_up = static_cast<std::uint64_t>(times * static_cast<double>(asked));
    }));
    return joined_lines(text);
  };
  EXPECT_THAT(
      text_if(1),
      HasSubstr("learning rate 1 had a better validation loss and was not chosen, because its threshold sent 43 "
                "times as many entries as the ratio asks for"));
  EXPECT_THAT(text_if(3),
              HasSubstr("every setting sent more than 2 times as many entries as its ratio asks for; the one "
                        "that sent least was chosen, 3 times"));
}

TEST(SummaryText, SaysWhichMethodSentMoreThanItsRatio) {
  const Plan plan = made_up_plan(small_request({"topk", "randomk"}));
  const auto loss = [](const Cell&, std::uint64_t) { return 0.5; };
  const std::string text = joined_lines(summary_text(made_up_study(plan, loss, [&](Record& run) {
    const double times = run.cell.method == "topk" ? 8.5 : 2;
    const std::uint64_t asked = run.cell.k * run.steps * run.config.workers;
    run.totals.entries_up = static_cast<std::uint64_t>(times * static_cast<double>(asked));
  })));
  EXPECT_THAT(text, HasSubstr("topk, ratio 0.1: it sent 8.5 times as many entries as its ratio asks for."));
  EXPECT_THAT(text, Not(HasSubstr("randomk, ratio 0.1: it sent")));
}

TEST(SummaryText, SaysWhatIntervalsCover) {
  Plan plan = made_up_plan(small_request({"dense", "topk"}));
  EXPECT_THAT(about_intervals(plan), HasSubstr("the generated data, the start, the batches and the split"));
  plan.data = "2329875 bytes, CRC-32C 0badcafe";
  EXPECT_THAT(about_intervals(plan),
              HasSubstr("the start, the batches and the split, which a seed decides; not the data"));
  plan.init_weights = "131 weights, CRC-32C 0badcafe";
  EXPECT_THAT(about_intervals(plan), HasSubstr("They cover the batches and the split, which a seed decides"));
}

TEST(SummaryText, GivesIntervalsTwoDigits) {
  Request request = small_request({"dense", "topk"});
  request.lrs = {0.1};
  request.seeds = 2;
  const Plan plan = made_up_plan(request);
  const std::string text = summary_text(made_up_study(plan, [](const Cell& cell, std::uint64_t seed) {
    return cell.method == "topk" ? 0.25 + static_cast<double>(seed % 1000) / 64 : 0.25;
  }));
  // 0.25 and 0.265625: half a 64th is 0.0078125, and 12.7 times that 0.09927.
  EXPECT_THAT(text, HasSubstr("topk      0.1  0.268 +-0.099  +0.008 +-0.099     0.500  0 of 2"));
  EXPECT_THAT(text, HasSubstr("dense       -       0.26 +-0 "));
}

TEST(SummaryMarkdown, IsTablesThatOthersCanShow) {
  const Plan plan = made_up_plan(small_request({"dense", "topk | downlink=topk"}));
  const std::string text = summary_markdown(made_up_study(plan, some_loss));
  EXPECT_THAT(text, StartsWith("# logreg:"));
  EXPECT_THAT(
      text,
      HasSubstr("| method | ratio | test loss | difference | p (Holm) | won |\n|---|---:|---:|---:|---:|---:|\n"));
  EXPECT_THAT(text, HasSubstr("| topk \\| downlink=topk | 0.1 |")) << "a bar would end the cell";
  EXPECT_THAT(text, AllOf(HasSubstr("±"), Not(HasSubstr("+-"))));
  for (const std::string& line : lines_of(text)) {
    if (!line.starts_with("| ")) continue;
    std::size_t bars = 0;
    for (std::size_t i = 0; i < line.size(); ++i) bars += line[i] == '|' && (i == 0 || line[i - 1] != '\\') ? 1U : 0U;
    EXPECT_THAT(bars, ::testing::AnyOf(7u, 8u)) << line;
  }
}

TEST(SummaryLatex, IsTablesThatAPaperCanInclude) {
  const Plan plan = made_up_plan(small_request({"dense", "topk | downlink=topk"}));
  const std::string text = summary_latex(made_up_study(plan, some_loss));
  EXPECT_THAT(text, StartsWith("% Tables of a study by sparsewire "));
  EXPECT_THAT(text, HasSubstr("% Judged on seeds 0, 1, 2; settings were chosen on seeds 1000, 1001.\n"));
  EXPECT_THAT(text, HasSubstr("  \\label{tab:\\sparsewirestudy-measures}\n  \\small\n  \\begin{tabular}{@{}lrrrrr@{}}\n"
                              "    \\toprule\n"
                              "    method & ratio & test loss & difference & p (Holm) & won \\\\\n"
                              "    \\midrule\n"
                              "    dense & -- & "));
  EXPECT_THAT(text, HasSubstr("    topk $|$ downlink=topk & 0.1 & "));
  EXPECT_THAT(text, HasSubstr(" & 0.1{*} & ")) << "a learning rate at the edge of the grid";
  EXPECT_THAT(text, AllOf(HasSubstr("95 \\% interval"), HasSubstr(" $\\pm$ "), Not(HasSubstr("+-"))));
}

std::vector<std::string> keys_of(std::vector<std::string> methods, std::uint64_t local_steps = 1) {
  Request request = small_request(std::move(methods));
  request.config.local_steps = local_steps;
  std::vector<std::string> keys;
  for (const Reference& one : references(made_up_plan(request))) {
    EXPECT_THAT(one.entry, HasSubstr("{" + one.key + ",\n"));
    keys.push_back(one.key);
  }
  EXPECT_EQ(keys.at(0), "sparsewire");
  keys.erase(keys.begin());
  return keys;
}

TEST(References, AreThePapersOfTheMethodsThatThePlanHas) {
  EXPECT_THAT(keys_of({"dense"}), ElementsAre());
  EXPECT_THAT(keys_of({"dense", "randomk", "topk"}), ElementsAre("stich2018sparsified"));
  EXPECT_THAT(keys_of({"dense", "topk | feedback=none"}), ElementsAre());
  EXPECT_THAT(keys_of({"topk | feedback=momentum:m=0.8/0.9"}), ElementsAre("lin2018deep"));
  EXPECT_THAT(keys_of({"rtopk:r=2", "regtopk | feedback=none", "threshold"}),
              ElementsAre("stich2018sparsified", "sahu2021rethinking", "bereyhi2025regularized", "barnes2020rtopk"));
  EXPECT_THAT(keys_of({"topk | downlink=threshold feedback=none"}),
              ElementsAre("sahu2021rethinking", "zou2022downlink"));
  EXPECT_THAT(keys_of({"dense | name=averaging"}, 30), ElementsAre());
  EXPECT_THAT(keys_of({"dense | outer_momentum=0.9"}, 30), ElementsAre("douillard2023diloco"));
  EXPECT_THAT(keys_of({"topk"}, 30), ElementsAre("stich2018sparsified", "sarfi2025communication"));
}

}  // namespace
}  // namespace sparsewire::study::tables_test
