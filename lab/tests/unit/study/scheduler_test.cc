// Runs side by side on threads, kept when they are whole, and the phases of a study.
#include "study/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "loop/pilot.h"
#include "loop/weights_file.h"
#include "sparsewire/errors.h"
#include "sparsewire/transport.h"
#include "study/cell_config.h"
#include "study/estimate.h"
#include "study/study.h"
#include "unit/folder.h"
#include "unit/trained.h"

namespace sparsewire::study::scheduler_test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

struct Silent : StudyWatcher {
  void on_record(const Record& record, bool was_there) override {
    ++(was_there ? were_there : done);
    last = record.cell;
  }
  void on_steps(std::uint64_t steps_done) override { steps = steps_done; }
  void on_phase(const std::string& name, const Work& left) override {
    phases.push_back(name);
    if (phases.size() == 1) all = left;
  }
  void on_note(const std::string& note) override { notes.push_back(note); }

  int done = 0;
  int were_there = 0;
  std::uint64_t steps = 0;
  Cell last;
  std::vector<std::string> phases;
  std::vector<std::string> notes;
  Work all;
};

Request small_request() {
  Request request;
  request.methods = {"dense", "topk", "threshold"};
  request.ratios = {"0.2"};
  request.lrs = {0.1, 0.5};
  request.seeds = 2;
  request.tune_seeds = 1;
  request.config.problem = "logreg:dim=20,samples=60";
  request.config.workers = 2;
  request.config.validation = 0.2;
  request.config.steps = 12;
  request.config.eval_every = 4;
  return request;
}

Plan plan_of(const Request& request) {
  const auto problem = train::make_problem(request.config.problem, train::problem_place(request.config));
  return make_plan(request, *problem);
}

Task task_of(const Plan& plan, std::size_t cell, std::uint64_t seed) {
  return {.phase = kTune, .cell = plan.cells[cell], .config = config_of(plan, plan.cells[cell], seed)};
}

std::vector<Task> some_tasks(const Plan& plan) {
  return {task_of(plan, 2, 5), task_of(plan, 0, 5), task_of(plan, 2, 4), task_of(plan, 1, 4)};
}

TEST(Scheduler, ReturnsRecordsInTheOrderOfItsTasksWhateverRunsBesideThem) {
  const Plan plan = plan_of(small_request());
  std::vector<std::uint32_t> checksums;
  for (const unsigned jobs : {1U, 3U}) {
    const Folder folder;
    Silent watcher;
    const std::vector<Record> records =
        Scheduler(plan, {.folder = folder / "s", .jobs = jobs}, watcher).run(some_tasks(plan));
    ASSERT_EQ(records.size(), 4U);
    EXPECT_EQ(watcher.done, 4);
    EXPECT_GT(watcher.steps, 12U);
    for (std::size_t i = 0; i < records.size(); ++i) {
      EXPECT_EQ(records[i].cell, some_tasks(plan)[i].cell);
      EXPECT_EQ(records[i].seed, some_tasks(plan)[i].config.seed);
      EXPECT_EQ(records[i].status, kFinished);
      EXPECT_EQ(records[i].steps, 12U);
      ASSERT_EQ(records[i].curve.size(), 4U);  // steps 0, 4, 8, 12
      EXPECT_EQ(records[i].curve[0].val_loss,
                records[i].seed == 5 ? records[0].curve[0].val_loss : records[2].curve[0].val_loss);
      EXPECT_LT(records[i].final_train_loss, records[i].initial_train_loss);
      EXPECT_EQ(records[i].curve.back().val_loss, records[i].val_loss);
      EXPECT_EQ(records[i].curve.back().bytes, records[i].bytes());
      checksums.push_back(records[i].weights_crc32c);
    }
  }
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(checksums[i], checksums[i + 4]);
}

TEST(Scheduler, NoticesThatADataFileWasChanged) {
  const Folder folder;
  const auto write = [&](const std::string& last) {
    std::ofstream(folder / "data") << "+1 1:1 3:2\n-1 2:1\n+1 1:2\n-1 2:2 3:1\n" << last;
  };
  write("");
  Request request = small_request();
  request.config.problem = "logreg";
  request.config.data = folder / "data";
  request.config.validation = 0;
  const Plan plan = plan_of(request);
  write("+1 1:1\n");
  Silent watcher;
  EXPECT_THAT([&] { Scheduler(plan, {.folder = folder / "s"}, watcher).run(some_tasks(plan)); },
              ThrowsMessage<std::runtime_error>(HasSubstr("was changed during the study")));
}

TEST(Scheduler, ReadsWhatIsThereAndRemovesWhatIsNotWhole) {
  const Plan plan = plan_of(small_request());
  const Folder folder;
  Silent first;
  const auto before = Scheduler(plan, {.folder = folder / "s"}, first).run(some_tasks(plan));
  fs::create_directory(folder / "s/runs/.unfinished-0123");
  fs::remove_all(folder / ("s/runs/" + before[1].id));
  Silent second;
  const auto after = Scheduler(plan, {.folder = folder / "s"}, second).run(some_tasks(plan));
  EXPECT_EQ(second.were_there, 3);
  EXPECT_EQ(second.done, 1);
  EXPECT_FALSE(fs::exists(folder / "s/runs/.unfinished-0123"));
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(before[i].id, after[i].id);
    EXPECT_EQ(before[i].weights_crc32c, after[i].weights_crc32c);
    EXPECT_EQ(before[i].val_loss, after[i].val_loss);
  }
}

// `topk` and `topk | codec=auto` are the same training.
TEST(Scheduler, RunsEqualConfigurationsOnceAndKeepsTheirCells) {
  Request request = small_request();
  request.methods = {"topk", "topk | codec=auto"};
  const Plan plan = plan_of(request);
  const Folder folder;
  Silent watcher;
  const auto records =
      Scheduler(plan, {.folder = folder / "s"}, watcher).run({task_of(plan, 0, 5), task_of(plan, 2, 5)});
  EXPECT_EQ(watcher.done, 1);
  EXPECT_EQ(records[0].id, records[1].id);
  EXPECT_EQ(records[0].cell.method, "topk");
  EXPECT_EQ(records[1].cell.method, "topk | codec=auto");
  EXPECT_EQ(records[1].cell.method_index, 1U);
}

TEST(Scheduler, KeepsWhatIsDoneWhenItIsAskedToStop) {
  const Plan plan = plan_of(small_request());
  const Folder folder;
  Silent watcher;
  SchedulerOptions options{.folder = folder / "s"};
  options.stop_requested = [&] { return watcher.done == 2; };
  EXPECT_THROW(Scheduler(plan, options, watcher).run(some_tasks(plan)), Stopped);
  int whole = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder / "s/runs")) {
    read_record(entry.path().string());
    ++whole;
  }
  EXPECT_EQ(whole, 2);
}

TEST(Scheduler, StartsNothingWhenTheTimeIsOver) {
  const Plan plan = plan_of(small_request());
  const Folder folder;
  Silent watcher;
  SchedulerOptions options{.folder = folder / "s"};
  options.last_start = std::chrono::steady_clock::now() - std::chrono::hours(1);
  EXPECT_THAT([&] { Scheduler(plan, options, watcher).run(some_tasks(plan)); },
              ThrowsMessage<Stopped>(HasSubstr("--max-hours")));
  EXPECT_EQ(watcher.done, 0);
}

TEST(Scheduler, RecordsThatARunDiverged) {
  Request request = small_request();
  request.config.problem = "linreg:dim=10,samples=20";
  request.config.validation = 0;
  request.lrs = {0.1, 3, 1e30};
  request.methods = {"dense"};
  const Plan plan = plan_of(request);
  const Folder folder;
  Silent watcher;
  const auto records = Scheduler(plan, {.folder = folder / "s"}, watcher)
                           .run({task_of(plan, 0, 5), task_of(plan, 1, 5), task_of(plan, 2, 5)});
  EXPECT_EQ(records[0].status, kFinished);
  EXPECT_EQ(records[1].status, kDiverged);  // larger than at the start, but finite
  EXPECT_EQ(records[1].diverged_at, std::nullopt);
  EXPECT_GT(records[1].final_train_loss, records[1].initial_train_loss);
  EXPECT_EQ(records[2].status, kDiverged);
  EXPECT_TRUE(records[2].diverged_at);
}

TEST(Scheduler, PassesOnAnErrorThatIsNoResult) {
  const Plan plan = plan_of(small_request());
  std::vector<Task> tasks = some_tasks(plan);
  tasks[1].config.seed = 6;
  tasks[1].config.split = "dirichlet:alpha=-1";
  const Folder folder;
  Silent watcher;
  EXPECT_THROW(Scheduler(plan, {.folder = folder / "s", .jobs = 2}, watcher).run(tasks), UsageError);
}

TEST(Study, RunsPilotsThenTunesThenJudgesTheChosenCells) {
  Plan plan = plan_of(small_request());
  const Folder folder;
  claim_folder(folder / "s", plan);
  Silent watcher;
  const Results results = run_study(plan, {.folder = folder / "s", .jobs = 2}, watcher);
  EXPECT_THAT(watcher.phases, ::testing::ElementsAre("pilots", "tuning", "judging"));
  ASSERT_EQ(results.records.size(), 2U + 6U + 6U);
  EXPECT_EQ(watcher.all.runs, 2U + 6U + 6U);
  EXPECT_EQ(watcher.all.steps, 2U * 5U + 12U * 12U);
  for (std::size_t i = 0; i < results.records.size(); ++i) {
    const Record& record = results.records[i];
    EXPECT_EQ(record.phase, i < 2 ? kPilot : i < 8 ? kTune : kJudge);
    if (record.phase == kJudge) {
      EXPECT_LT(record.seed, 2U);
    }
    if (record.phase != kJudge) {
      EXPECT_EQ(record.seed, 1000U);
    }
    if (record.phase == kPilot) {
      EXPECT_GT(record.lambda.value_or(0), 0);
    }
    if (record.phase != kPilot && record.cell.method == "threshold") {
      EXPECT_THAT(record.config.sparsifier, HasSubstr("threshold:lambda="));
    }
  }
}

// As the same trainings do by themselves. The plan has read the file, so nobody needs it any more.
TEST(Study, StartsEveryRunFromGivenWeights) {
  const Folder folder;
  const std::vector<float> weights(20, 0.5F);
  train::write_weights(folder / "w.npy", weights);
  Request request = small_request();
  request.config.init_weights = folder / "w.npy";
  Plan plan = plan_of(request);
  fs::rename(folder / "w.npy", folder / "moved.npy");
  claim_folder(folder / "s", plan);
  Silent watcher;
  const Results results = run_study(plan, {.folder = folder / "s", .jobs = 2}, watcher);
  ASSERT_EQ(results.records.size(), 2U + 6U + 6U);
  for (const Record& record : results.records) {
    SCOPED_TRACE(record.phase + " " + record.cell.method);
    const auto problem = train::make_problem(record.config.problem, train::problem_place(record.config));
    EXPECT_EQ(record.initial_train_loss, problem->evaluate(train::Part::train, weights).loss);
    train::TrainConfig config = record.config;
    config.init_weights = folder / "moved.npy";
    if (record.phase != kPilot) {
      EXPECT_EQ(train::trained(config).weights_crc32c, record.weights_crc32c);
      continue;
    }
    run_on_threads(2, [&](Transport& transport) {
      const train::Run run{.config = config, .problem = *problem, .transport = transport};
      EXPECT_EQ(train::run_pilot(run, 0.2, record.steps).lambda, record.lambda);
    });
  }
}

TEST(Study, ClaimsAnEmptyFolderOrItsOwn) {
  const Plan plan = plan_of(small_request());
  const Folder folder;
  claim_folder(folder / "s", plan);
  claim_folder(folder / "s", plan);
  Request request = small_request();
  request.lrs = {0.1};
  EXPECT_THAT([&] { claim_folder(folder / "s", plan_of(request)); },
              ThrowsMessage<UsageError>(HasSubstr("is of another study: --lr was [0.1,0.5] and is [0.1]")));
  fs::create_directory(folder / "t");
  folder.write("t/notes.txt", "mine");
  EXPECT_THAT([&] { claim_folder(folder / "t", plan); }, ThrowsMessage<UsageError>(HasSubstr("is not empty")));
  folder.write("s/plan.json", "nonsense");
  EXPECT_THAT([&] { claim_folder(folder / "s", plan); }, ThrowsMessage<UsageError>(HasSubstr("is of another study")));
}

TEST(Study, GrowsTheGridWhereTheBestIsAtItsEdgeTwiceAtMost) {
  Request request = small_request();
  request.methods = {"dense"};
  request.lrs = {1e-6, 2e-6};  // more is better
  request.grow = true;
  Plan plan = plan_of(request);
  const Folder folder;
  claim_folder(folder / "s", plan);
  Silent watcher;
  const Results results = run_study(plan, {.folder = folder / "s"}, watcher);
  ASSERT_EQ(plan.cells.size(), 4U);
  EXPECT_EQ(plan.cells[2].lr, 4e-6);
  EXPECT_EQ(plan.cells[2].grown, 1U);
  EXPECT_EQ(plan.cells[3].lr, 8e-6);
  EXPECT_EQ(plan.cells[3].grown, 2U);
  EXPECT_EQ(results.choices[0].cell, 3U);
  EXPECT_TRUE(results.choices[0].at_high_edge);
  EXPECT_EQ(results.choices[0].cells_tried, 4U);
  EXPECT_THAT(watcher.notes,
              ::testing::ElementsAre("dense: lr 2e-06 is the best and at the edge, so 4e-06 is tried too",
                                     "dense: lr 4e-06 is the best and at the edge, so 8e-06 is tried too"));
}

// The notes of a study of one method that grows its grid; `plan` has the cells afterwards.
std::vector<std::string> notes_of_growth(const std::string& method, std::vector<double> lrs, Plan& plan) {
  Request request = small_request();
  request.methods = {method};
  request.lrs = std::move(lrs);
  request.grow = true;
  plan = plan_of(request);
  const Folder folder;
  claim_folder(folder / "s", plan);
  Silent watcher;
  run_study(plan, {.folder = folder / "s"}, watcher);
  return watcher.notes;
}

TEST(Study, GrowsTheGridBeyondTheEdgeOfAnyParameter) {
  Plan plan;
  EXPECT_THAT(notes_of_growth("dense | clip=0.001/0.002 name=clipped", {0.01, 0.1, 1e6}, plan),  // more is better
              ::testing::ElementsAre("clipped: clip 0.002 is the best and at the edge, so 0.004 is tried too",
                                     "clipped: clip 0.004 is the best and at the edge, so 0.008 is tried too"));
  ASSERT_EQ(plan.cells.size(), 2U * 3U + 2U);
  EXPECT_EQ(plan.cells[6].own.at("clip"), "0.004");
  EXPECT_EQ(plan.cells[6].lr, 0.1);
  EXPECT_EQ(plan.cells[6].k, 20U);
  EXPECT_EQ(plan.cells[7].own.at("clip"), "0.008");
  EXPECT_EQ(plan.cells[7].grown, 2U);
}

TEST(Study, GrowsByWholeNumbersWhereAParameterTakesNoOthers) {
  Plan plan;
  EXPECT_THAT(notes_of_growth("topk:warmup_from=0.5,warmup_steps=2/3 | name=warm", {0.01, 0.1, 1e6}, plan),
              ::testing::ElementsAre("warm, ratio 0.2: warmup_steps 2 is the best and at the edge, so 1 is tried too"));
}

TEST(Study, SaysWhereAParameterCannotGrow) {
  Plan plan;
  EXPECT_THAT(
      notes_of_growth("topk | feedback=ef:decay=0.01/1", {0.1}, plan),
      ::testing::Contains(HasSubstr("feedback.decay 1 is the best and at the edge, and 100 cannot be tried: [ef] "
                                    "decay=100 is not in")));
}

TEST(Study, FitsTheStepsOfEachMethodToABudget) {
  Request request = small_request();
  request.methods = {"dense", "topk"};
  request.lrs = {0.1};
  request.config.problem = "logreg:dim=400,samples=60";
  request.config.schedule = "cosine";
  request.budget_bytes = 100'000;
  Plan plan = plan_of(request);
  const Folder folder;
  claim_folder(folder / "s", plan);
  Silent watcher;
  const Results results = run_study(plan, {.folder = folder / "s"}, watcher);
  std::uint64_t steps_of_dense = 0;
  for (const Record& record : results.records) {
    if (record.phase == kProbe) continue;
    EXPECT_LE(record.bytes(), 102'000U);
    EXPECT_GT(record.bytes(), 95'000U);
    EXPECT_EQ(record.steps, record.config.steps);
    if (record.cell.method == "dense") steps_of_dense = record.steps;
    if (record.cell.method == "topk") {
      EXPECT_GT(record.steps, steps_of_dense);
    }
  }
}

TEST(Study, LeavesOutACellWhosePilotDiverged) {
  Request request = small_request();
  request.config.problem = "linreg:dim=10,samples=20";
  request.config.validation = 0;
  request.methods = {"threshold"};
  request.lrs = {0.1, 1e30};
  Plan plan = plan_of(request);
  const Folder folder;
  claim_folder(folder / "s", plan);
  Silent watcher;
  const Results results = run_study(plan, {.folder = folder / "s"}, watcher);
  EXPECT_EQ(results.records.size(), 2U + 1U + 2U);
  EXPECT_EQ(results.records[1].status, kDiverged);
  EXPECT_EQ(results.choices[0].cell, 0U);
  EXPECT_THAT(watcher.notes, ::testing::ElementsAre(
                                 "threshold, ratio 0.2, lr 1e+30: the pilot diverged, so these settings are left out"));
}

TEST(Estimate, CountsRunsAndStepsWithoutWritingAnything) {
  const Plan plan = plan_of(small_request());
  const Folder folder;
  const Estimate all = estimate(plan, {.folder = folder / "s", .jobs = 2});
  EXPECT_EQ(all.runs(), 2U + 6U + 6U);
  EXPECT_EQ(all.pilots.steps, 10U);
  EXPECT_EQ(all.tuning.steps, 72U);
  EXPECT_EQ(all.judging.runs, 6U);
  EXPECT_GT(all.hours, 0);
  EXPECT_GT(all.disk_bytes, 14'000U);
  EXPECT_FALSE(fs::exists(folder / "s"));
}

TEST(Estimate, TimesNoMoreStepsThanARunHas) {
  Request request = small_request();
  for (const auto& [steps, timed] : {std::pair(1U, 1U), std::pair(7U, 7U), std::pair(100U, 20U)}) {
    SCOPED_TRACE(steps);
    request.config.steps = steps;
    const Estimate all = estimate(plan_of(request), {.folder = "none"}, {.longest = std::chrono::hours(1)});
    EXPECT_EQ(all.fewest_steps, timed);
    EXPECT_EQ(all.most_steps, timed);
    EXPECT_EQ(all.judging.steps, 6U * steps);
    EXPECT_GT(all.hours, 0);
  }
}

TEST(Estimate, BeginsNoStepButTheSecondOfAMethodAfterItsTime) {
  const Plan plan = plan_of(small_request());
  std::vector<std::size_t> told;
  const Estimate all =
      estimate(plan, {.folder = "none"},
               {.longest = std::chrono::milliseconds(0), .on_method = [&](std::size_t number, std::size_t of) {
                  told.push_back(number);
                  EXPECT_EQ(of, groups(plan).size());
                }});
  EXPECT_EQ(all.most_steps, 2U);
  EXPECT_GT(all.hours, 0);
  EXPECT_THAT(told, ::testing::ElementsAre(1, 2, 3));
}

}  // namespace
}  // namespace sparsewire::study::scheduler_test
