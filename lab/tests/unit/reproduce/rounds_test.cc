// Rounds of the real workers for experiments: their totals, and a comparison with the same rounds in double.
#include "reproduce/rounds.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "problems/linreg.h"
#include "reproduce/precise_rounds.h"
#include "reproduce/reproduction.h"
#include "reproduce/table.h"
#include "sparsewire/errors.h"

namespace sparsewire::reproduce::rounds_test {
namespace {

std::unique_ptr<train::Linreg> small_problem(int workers) {
  return train::make_linreg({.dim = 12, .samples = 30}, {.workers = workers, .seed = 3, .data = {}});
}

Plan small_plan(const char* sparsifier, int workers, std::uint64_t rounds) {
  return {.worker = {.sparsifier = sparsifier, .exchange = "server"}, .workers = workers, .rounds = rounds, .lr = 0.01};
}

TEST(Rounds, CountOverAllWorkers) {
  const auto problem = small_problem(3);
  std::vector<std::uint64_t> seen;
  const RoundTotals totals =
      run(small_plan("topk:k=5", 3, 7), *problem, [&](const Round& round) { seen.push_back(round.step); });
  EXPECT_EQ(seen, (std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(totals.entries, std::vector<double>(7, 15));
  EXPECT_EQ(totals.entries_until(2), 10);
  EXPECT_EQ(totals.all_entries(), 35);
  EXPECT_GT(totals.peak(), 0);
  EXPECT_GT(totals.total_error(), totals.peak());
  EXPECT_LE(totals.total_error(), 7 * totals.peak());
}

TEST(Rounds, OfDenseTrainingHoldNothingBack) {
  const auto problem = small_problem(2);
  const RoundTotals totals = run(small_plan("dense", 2, 4), *problem, [](const Round&) {});
  EXPECT_EQ(totals.peak(), 0);
  EXPECT_EQ(totals.all_entries(), 48);
}

TEST(Rounds, StartWhereTheyAreTold) {
  const auto problem = small_problem(2);
  Plan plan = small_plan("dense", 2, 0);
  plan.start.assign(12, 1.5);
  run(plan, *problem, [&](const Round& round) { EXPECT_EQ(round.weights[11], 1.5); });
}

TEST(Rounds, OfTheEngineAndInDoubleAgree) {
  using Method = PrecisePlan::Method;
  struct Pair {
    const char* sparsifier;
    Method method;
  };
  for (const Pair& pair : {Pair{"topk:k=5", Method::topk}, Pair{"regtopk:k=5,mu=2,form=a", Method::regtopk_a},
                           Pair{"regtopk:k=5,mu=2,form=b", Method::regtopk_b}}) {
    SCOPED_TRACE(pair.sparsifier);
    const auto problem = small_problem(4);
    std::vector<double> engine;
    run(small_plan(pair.sparsifier, 4, 60), *problem,
        [&](const Round& round) { engine.insert(engine.end(), round.weights.begin(), round.weights.end()); });
    std::vector<double> precise;
    run_precise({.method = pair.method, .k = 5, .mu = 2, .workers = 4, .rounds = 60, .lr = 0.01}, *problem,
                [&](std::uint64_t, std::span<const double> w) { precise.insert(precise.end(), w.begin(), w.end()); });
    ASSERT_EQ(engine.size(), precise.size());
    for (std::size_t i = 0; i < engine.size(); ++i) ASSERT_NEAR(engine[i], precise[i], 1e-5) << i;
  }
}

TEST(Reproductions, AreFoundByNameAndKnowTheirOptions) {
  const Reproduction& toy = find_reproduction("regtopk-toy");
  EXPECT_TRUE(toy.takes("at"));
  EXPECT_TRUE(toy.takes("mu"));
  EXPECT_FALSE(toy.takes("a"));
  EXPECT_FALSE(toy.takes(""));
  EXPECT_FALSE(toy.takes("at mu"));
  EXPECT_THROW(find_reproduction("regtopk"), UsageError);
}

TEST(Table, IsAsWideAsItsLongestCells) {
  Table table({"method", "loss"});
  table.add({"a", fixed(0.123456, 5)});
  table.add({"bc", fixed(std::nullopt, 5)});
  EXPECT_EQ(table.text(), "method     loss\na       0.12346\nbc        never\n");
}

TEST(Table, StacksItsTitlesWhereTheyWouldNotFit80Columns) {
  const std::string wide(30, 'x');
  Table table({"method", "up and down", "risk/order", "loss", wide});
  table.add({"a", "12345678901", "2", "3", wide});
  EXPECT_EQ(table.text(), "method  up and down  risk/order  loss  " + wide +
                              "\na       12345678901           2     3  " + wide + "\n");
  const std::string wider(52, 'x');
  Table narrow({"method", "up and down", "risk/order", "loss", wider});
  narrow.add({"a", "1", "2", "3", wider});
  EXPECT_EQ(narrow.text(), "          up\n         and  risk/\nmethod  down  order  loss  " + wider +
                               "\na          1      2     3  " + wider + "\n");
}

TEST(Table, PutsALongFirstCellOnALineOfItsOwn) {
  const std::string name = "topk_by_layer_without_memory";
  const std::string number(30, '1');
  Table table({"method", "up and down", "loss"});
  table.add({name, number, number});
  table.add({"topk", "2", "3"});
  EXPECT_EQ(table.text(), std::string(35, ' ') + "up\n" + std::string(34, ' ') + "and\n" + "method" +
                              std::string(27, ' ') + "down" + std::string(27, ' ') + "loss\n" + name + "\n" +
                              std::string(7, ' ') + number + " " + number + "\ntopk" + std::string(32, ' ') + "2" +
                              std::string(30, ' ') + "3\n");
}

}  // namespace
}  // namespace sparsewire::reproduce::rounds_test
