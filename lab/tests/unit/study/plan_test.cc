// Which runs a plan consists of, and how it tells two studies apart.
#include "study/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <vector>

#include "loop/weights_file.h"
#include "sparsewire/errors.h"
#include "study/cell_config.h"
#include "study/record.h"
#include "unit/folder.h"

namespace sparsewire::study::plan_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::ThrowsMessage;

Request small_request() {
  Request request;
  request.methods = {"dense", "topk", "regtopk:mu=4"};
  request.ratios = {"0.1", "0.5"};
  request.lrs = {0.3, 0.1};
  request.config.problem = "logreg:dim=20,samples=60";
  request.config.workers = 2;
  request.config.validation = 0.2;
  request.config.steps = 10;
  request.config.eval_every = 1;
  request.config.seed = 7;
  return request;
}

Plan plan_of(const Request& request) {
  const auto problem = train::make_problem(request.config.problem, train::problem_place(request.config));
  return make_plan(request, *problem);
}

TEST(Plan, HasACellForEachMethodRatioAndLearningRate) {
  const Plan plan = plan_of(small_request());
  ASSERT_EQ(plan.cells.size(), 2U + 4U + 4U);
  EXPECT_EQ(plan.cells[0].method, "dense");
  EXPECT_EQ(plan.cells[0].ratio, "");
  EXPECT_EQ(plan.cells[0].k, 20U);
  EXPECT_EQ(plan.cells[0].lr, 0.1);
  EXPECT_EQ(plan.cells[1].lr, 0.3);
  EXPECT_EQ(plan.cells[2].method, "topk");
  EXPECT_EQ(plan.cells[2].ratio, "0.1");
  EXPECT_EQ(plan.cells[2].k, 2U);
  EXPECT_EQ(plan.cells[4].ratio, "0.5");
  EXPECT_EQ(plan.cells[4].k, 10U);
  EXPECT_EQ(plan.cells[9].method_index, 2U);
  EXPECT_THAT(groups(plan),
              ElementsAre(Group{0, ""}, Group{1, "0.1"}, Group{1, "0.5"}, Group{2, "0.1"}, Group{2, "0.5"}));
}

TEST(Plan, JudgesOnOtherSeedsThanItTunesOn) {
  const Plan plan = plan_of(small_request());
  EXPECT_THAT(plan.seeds, ElementsAre(7, 8, 9, 10, 11));
  EXPECT_THAT(plan.tune_seeds, ElementsAre(1007, 1008));
  EXPECT_EQ(pilot_seed(plan), 1007U);
  Request request = small_request();
  request.tune_seeds = 0;
  request.lrs = {0.1};
  EXPECT_EQ(pilot_seed(plan_of(request)), 1007U);
}

TEST(Plan, MergesRatiosThatSendEquallyMany) {
  Request request = small_request();
  request.ratios = {"0.5", "0.11", "0.1", "0.5"};
  const Plan plan = plan_of(request);
  EXPECT_THAT(plan.ratios, ElementsAre("0.1", "0.5"));
  EXPECT_THAT(plan.notes, ElementsAre("ratio 0.11 is left out: like 0.1 it sends 2 of 20 entries"));
}

TEST(Plan, SaysWhatTheRequestCannotGive) {
  Request request = small_request();
  request.ratios = {"0.02"};
  request.config.eval_every = 0;
  EXPECT_THAT(
      plan_of(request).notes,
      ElementsAre("ratio 0.02 sends 1 of 20 entries",
                  "no run can reach a target: that needs 5 evaluations, and there are 2; choose another --eval-every"));
  request.config.eval_every = 2;
  EXPECT_THAT(plan_of(request).notes, ElementsAre("ratio 0.02 sends 1 of 20 entries"));
  request.config.steps = 3;
  EXPECT_THAT(plan_of(request).notes,
              ElementsAre("ratio 0.02 sends 1 of 20 entries",
                          "no run can reach a target: that needs 5 evaluations, and there are 3; choose more --steps"));
}

TEST(Plan, GivesEveryMethodTheSameLearningRates) {
  Request request = small_request();
  request.methods = {"dense", "regtopk:mu=1/4"};
  const Plan plan = plan_of(request);
  EXPECT_EQ(plan.cells.size(), 2U + 2U * 4U);
  for (const char* const mu : {"1", "4"}) {
    std::vector<double> lrs;
    for (const Cell& cell : plan.cells) {
      if (cell.ratio == "0.5" && cell.own.at("mu") == mu) lrs.push_back(cell.lr);
    }
    EXPECT_THAT(lrs, ElementsAre(0.1, 0.3)) << mu;
  }
  EXPECT_THAT(plan.notes, IsEmpty());
}

TEST(Plan, SaysWhoHasOtherLearningRates) {
  Request request = small_request();
  request.methods = {"dense", "regtopk | lr=0.3/0.05 name=reg", "topk", "rtopk:r=4 | lr=0.1/0.3"};
  const Plan plan = plan_of(request);
  EXPECT_EQ(plan.cells[2].lr, 0.05);
  EXPECT_THAT(plan.notes,
              ElementsAre("methods had different learning rates to choose from (dense, topk, rtopk:r=4 | lr=0.1/0.3: "
                          "0.1 0.3; reg: 0.05 0.3): what looks like a difference between methods may be one between "
                          "learning rates"));
}

TEST(Plan, EvaluatesOnTrainingDataWhereThatIsNeededAtEveryEvaluation) {
  Request request = small_request();
  EXPECT_FALSE(plan_of(request).config.eval_train);
  request.primary = "train_loss";
  EXPECT_TRUE(plan_of(request).config.eval_train) << "for equal bytes";
  request.primary = "metric";
  request.config.validation = 0;
  EXPECT_TRUE(plan_of(request).config.eval_train) << "for the target";
}

TEST(Plan, ChoosesThePrimaryMeasureByTheDataThereAre) {
  Request request = small_request();
  EXPECT_EQ(plan_of(request).primary, "val_loss");
  EXPECT_EQ(plan_of(request).tuned_by, "val_loss");
  request.config.validation = 0;
  EXPECT_EQ(plan_of(request).primary, "train_loss");
  EXPECT_EQ(plan_of(request).tuned_by, "train_loss");
  request.config.problem = "mlp:inputs=4,hidden=2,classes=2,samples=40";
  EXPECT_EQ(plan_of(request).primary, "test_loss");
  EXPECT_FALSE(is_higher_better(plan_of(request), "test_loss"));
  request.primary = "metric";
  EXPECT_EQ(plan_of(request).primary, "metric");
  EXPECT_TRUE(is_higher_better(plan_of(request), "metric"));
  request.primary = "beauty";
  EXPECT_THAT([&] { plan_of(request); },
              ThrowsMessage<UsageError>(HasSubstr("there are test_loss, train_loss, metric")));
}

TEST(Plan, ChoosesSettingsByTheMetricIfAsked) {
  Request request = small_request();
  request.tuned_by = "val_metric";
  EXPECT_EQ(plan_of(request).tuned_by, "val_metric");
  EXPECT_EQ(plan_of(request).target_by, "val_loss");
  EXPECT_TRUE(is_higher_better(plan_of(request), "val_metric"));
  request.config.validation = 0;
  EXPECT_THAT(
      [&] { plan_of(request); },
      ThrowsMessage<UsageError>(HasSubstr("--tuned-by 'val_metric' is not measured here; there is train_loss")));
}

TEST(Plan, TunesWithFewerStepsIfAsked) {
  Request request = small_request();
  request.tune_steps = 4;
  EXPECT_EQ(plan_of(request).tune_steps, 4U);
  EXPECT_THAT(difference(to_json(plan_of(small_request())), to_json(plan_of(request))), HasSubstr("--tune-steps was "));
  for (const std::uint64_t wrong : {0U, 11U}) {
    request.tune_steps = wrong;
    EXPECT_THAT([&] { plan_of(request); }, ThrowsMessage<UsageError>(HasSubstr("is not in [1, 10]")));
  }
  request.tune_steps = 4;
  request.budget_bytes = 1000;
  EXPECT_THAT([&] { plan_of(request); }, ThrowsMessage<UsageError>(HasSubstr("--tune-steps and --budget-bytes")));
  request.tune_steps.reset();
  request.config.workers = 1;
  EXPECT_THAT([&] { plan_of(request); },
              ThrowsMessage<UsageError>(HasSubstr("--budget-bytes needs at least 2 workers")));
}

TEST(Plan, CountsEntriesByTheScopeOfTheMethod) {
  Request request = small_request();
  request.config.problem = "mlp:inputs=4,hidden=3,classes=2,samples=60";  // tensors of 12, 3, 6 and 2 weights
  request.methods = {"topk", "topk | scope=layer"};
  request.ratios = {"0.2"};
  const Plan plan = plan_of(request);
  EXPECT_EQ(plan.cells.front().k, 5U);
  EXPECT_EQ(plan.cells.back().k, 2U + 1U + 1U + 1U);
  request.ratios = {"0.01"};
  EXPECT_EQ(plan_of(request).cells.front().k, 1U);
  EXPECT_EQ(plan_of(request).cells.back().k, 4U);
}

TEST(Plan, ComparesWithDenseUnlessToldOtherwise) {
  Request request = small_request();
  request.methods = {"topk", "dense", "topk | codec=raw32 name=plain"};
  EXPECT_EQ(plan_of(request).baseline, 1U);
  request.baseline = "plain";
  EXPECT_EQ(plan_of(request).baseline, 2U);
  request.baseline = "nobody";
  EXPECT_THAT([&] { plan_of(request); }, ThrowsMessage<UsageError>(HasSubstr("there are topk, dense, plain")));
}

TEST(Plan, FindsWrongMethodsBeforeTheFirstRun) {
  const auto error = [](std::vector<std::string> methods, const char* why) {
    Request request = small_request();
    request.methods = std::move(methods);
    EXPECT_THAT([&] { plan_of(request); }, ThrowsMessage<UsageError>(HasSubstr(why)));
  };
  error({}, "at least one method");
  error({"topk", "topk"}, "are the same");
  error({"topk", "regtopk | name=topk"}, "have the same name");
  error({"tpok"}, "'tpok': ");
  error({"topk:k=21"}, "'topk:k=21': ");
  error({"topk | exchange=allgather downlink=topk"}, "downlink");
  error({"topk | feedback=momentum optimiser=sgd:momentum=0.9"}, "momentum would be applied twice");
  error({"dense", "topk | local_steps=5"}, "give --local-steps to all methods");
  error({"topk | outer_lr=0.7"}, "--outer-lr and --outer-momentum are for the exchanges between local steps");
}

TEST(Plan, RefusesSettingsThatCannotBeChosenFrom) {
  Request request = small_request();
  request.tune_seeds = 0;
  EXPECT_THAT([&] { plan_of(request); }, ThrowsMessage<UsageError>(HasSubstr("with --tune-seeds 0")));
  request.lrs = {0.1};
  request.methods.emplace_back("rtopk:r=2/4");
  EXPECT_THAT([&] { plan_of(request); }, ThrowsMessage<UsageError>(HasSubstr("'rtopk:r=2/4' has 2 combinations")));
  request.methods.pop_back();
  EXPECT_THAT(plan_of(request).tune_seeds, IsEmpty());
  request.grow = true;
  EXPECT_THAT([&] { plan_of(request); }, ThrowsMessage<UsageError>(HasSubstr("--grow needs --tune-seeds")));
}

TEST(Plan, SaysHowItDiffersFromAnother) {
  const Json before = to_json(plan_of(small_request()));
  EXPECT_EQ(difference(before, before), "");
  Request request = small_request();
  request.config.steps = 11;
  request.seeds = 3;
  request.methods[1] = "rtopk";
  const std::string text = difference(before, to_json(plan_of(request)));
  EXPECT_THAT(text, HasSubstr("--methods was 'dense' 'topk' 'regtopk:mu=4' and is 'dense' 'rtopk' 'regtopk:mu=4'"));
  EXPECT_THAT(text, HasSubstr("--seeds was [7,8,9,10,11] and is [7,8,9]"));
  EXPECT_THAT(text, HasSubstr("--steps was 10 and is 11"));
  EXPECT_EQ(difference(Json::array(), before), "it is not a JSON object");
  Json older = before;
  older["environment"]["sparsewire"] = "0.1.0";
  EXPECT_THAT(difference(older, before), HasSubstr("sparsewire was 0.1.0 and is "));
}

TEST(Plan, KnowsTheContentsOfADataSetThatHasNoFile) {
  Plan plan = plan_of(small_request());
  EXPECT_TRUE(to_json(plan)["data"].is_null());
  plan.data = "12 bytes, CRC-32C 0badcafe";
  const Json before = to_json(plan);
  EXPECT_EQ(before["data"]["contents"], plan.data);
  plan.data = "12 bytes, CRC-32C 00000000";
  EXPECT_THAT(difference(before, to_json(plan)), HasSubstr("--data was "));
}

TEST(Plan, KnowsTheContentsOfGivenWeightsAndNotTheirPlace) {
  const Folder folder;
  train::write_weights(folder / "w.npy", std::vector<float>(20, 0.5F));
  train::write_weights(folder / "other.npy", std::vector<float>(20, 0.25F));
  const auto plan_with = [&](const char* name) {
    Request request = small_request();
    request.config.init_weights = folder / name;
    return plan_of(request);
  };
  const Json without = to_json(plan_of(small_request()));
  EXPECT_FALSE(without.contains("init_weights")) << "a study that has none has the plan that it always had";
  const Plan plan = plan_with("w.npy");
  EXPECT_EQ(plan.initial_weights, std::vector<float>(20, 0.5F));
  EXPECT_THAT(plan.notes, ElementsAre("every run starts from given weights (20 weights, CRC-32C 4317fc79)"));
  const Json with = to_json(plan);
  EXPECT_EQ(with["init_weights"], "20 weights, CRC-32C 4317fc79");
  EXPECT_NE(run_id(plan.config, kTune, plan), run_id(plan.config, kTune, plan_of(small_request())));
  std::filesystem::rename(folder / "w.npy", folder / "moved.npy");
  EXPECT_EQ(to_json(plan_with("moved.npy")), with);
  EXPECT_THAT(difference(with, to_json(plan_with("other.npy"))),
              MatchesRegex("--init-weights was 20 weights, CRC-32C 4317fc79 and is 20 weights, CRC-32C [0-9a-f]{8}"));
  EXPECT_EQ(difference(with, without), "--init-weights was 20 weights, CRC-32C 4317fc79 and is not given");
  EXPECT_EQ(difference(without, with), "--init-weights was not given and is 20 weights, CRC-32C 4317fc79");
}

TEST(Plan, RefusesWeightsThatDoNotFit) {
  const Folder folder;
  train::write_weights(folder / "w.npy", std::vector<float>(19, 0.5F));
  Request request = small_request();
  request.config.init_weights = folder / "w.npy";
  EXPECT_THAT([&] { plan_of(request); },
              ThrowsMessage<UsageError>(HasSubstr("has the shape (19,), but the model has 20 weights")));
}

// Names of folders and where reports go must not make two studies different.
TEST(Plan, DoesNotDependOnWhereThingsAreWritten) {
  Request request = small_request();
  const auto problem = train::make_problem(request.config.problem, train::problem_place(request.config));
  request.config.json = "report.json";
  request.config.data_dir = "data";
  request.config.quiet = true;
  request.config.deadline = 5;
  EXPECT_EQ(to_json(make_plan(request, *problem)), to_json(plan_of(small_request())));
}

TEST(CellConfig, FitsStepsAndEvaluationsToABudget) {
  EXPECT_EQ(steps_within(1000, 50, 10), 200U);
  EXPECT_EQ(steps_within(1009, 50, 10), 201U);
  EXPECT_EQ(steps_within(1, 50, 10), 1U);
  EXPECT_THROW(steps_within(1000, 0, 10), UsageError);
  train::TrainConfig config;
  config.steps = 1000;
  config.eval_every = 10;
  set_steps(config, 2500);
  EXPECT_EQ(config.steps, 2500U);
  EXPECT_EQ(config.eval_every, 25U);
  set_steps(config, 10);
  EXPECT_EQ(config.eval_every, 1U);
}

}  // namespace
}  // namespace sparsewire::study::plan_test
