// Workers whose options differ or are wrong are refused on all ranks. Ranks are threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "unit/exchange_cases.h"
#include "worker/options.h"

namespace sparsewire::worker_options_test {
namespace {

using bodies::ExchangeCase;
using bodies::Plan;
using bodies::Runner;
using ::testing::HasSubstr;

// The message of the UsageError that each rank throws, or "".
std::vector<std::string> errors_of(int ranks, const std::function<void(Transport&)>& make) {
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  run_on_threads(ranks, [&](Transport& transport) {
    std::string& mine = errors[static_cast<std::size_t>(transport.rank())];
    try {
      make(transport);
    } catch (const UsageError& error) {
      mine = error.what();
    }
  });
  return errors;
}

// Another value of the option.
void change(std::string& value) { value += "x"; }
void change(Scope& value) { value = value == Scope::model ? Scope::layer : Scope::model; }
void change(Average& value) { value = value == Average::all ? Average::senders : Average::all; }
void change(double& value) { value += 1; }
void change(std::uint64_t& value) { value += 1; }
void change(Pool*& value) {
  static Pool pool(1);
  value = &pool;
}

struct ConvertsToAnything {
  template <class T>
  operator T() const;  // NOLINT(google-explicit-constructor)
};

// The number of members of an aggregate: with one initialiser more it does not compile.
template <class Aggregate, class... Initialisers>
constexpr std::size_t number_of_members() {
  if constexpr (requires { Aggregate{Initialisers{}..., ConvertsToAnything{}}; }) {
    return number_of_members<Aggregate, Initialisers..., ConvertsToAnything>();
  } else {
    return sizeof...(Initialisers);
  }
}

// One rank has another value of one option. Takes the options from the list of all options.
TEST(WorkersWithDifferentOptions, AreRefusedOnAllRanksUnlessTheyMayDiffer) {
  std::vector<std::pair<std::string, AcrossRanks>> options;
  const WorkerConfig defaults;
  for_each_option(defaults, [&](const char* name, const auto&, AcrossRanks across_ranks) {
    options.emplace_back(name, across_ranks);
  });
  ASSERT_EQ(options.size(), number_of_members<WorkerConfig>()) << "an option is missing in worker/options.h";
  for (const auto& [changed, across_ranks] : options) {
    for (const int other : {0, 2}) {
      const auto errors = errors_of(3, [&, &name = changed](Transport& transport) {
        WorkerConfig config;
        for_each_option(config, [&](const char* option, auto& value, AcrossRanks) {
          if (option == name && transport.rank() == other) change(value);
        });
        const Worker worker(config, 1000, transport);
      });
      const std::string expected = across_ranks == AcrossRanks::must_be_equal ? "rank 0 has " + changed : "";
      for (const std::string& error : errors) {
        EXPECT_EQ(error.empty(), expected.empty()) << changed << ": " << error;
        EXPECT_THAT(error, HasSubstr(expected)) << changed;
      }
    }
  }
}

// A rank with a wrong spec cannot tell what `auto` stands for. It must not leave the others waiting for it.
TEST(WorkersWithDifferentOptions, AreRefusedOnAllRanksAlsoIfOneIsWrongUnderAuto) {
  for (const int other : {0, 2}) {
    std::vector<std::string> errors;
    EXPECT_NO_THROW(errors = errors_of(3, [&](Transport& transport) {
                      WorkerConfig config{.exchange = "auto"};
                      if (transport.rank() == other) config.codec = "auto:values=f99";
                      const Worker worker(config, 1000, transport);
                    }));
    for (const std::string& error : errors) EXPECT_NE(error, "");
  }
}

TEST(WorkersWithDifferentOptions, AreRefusedIfLayoutsDiffer) {
  for (const auto& [here, there] : {std::pair{Layout(10), Layout(11)},
                                    {Layout({{"a", 5}, {"b", 6}}), Layout({{"b", 6}, {"a", 5}})},
                                    {Layout({{"a", 5}, {"b", 6}}), Layout({{"a", 6}, {"b", 5}})},
                                    {Layout({{"a", 5}, {"b", 6}}), Layout({{"a", 5}, {"c", 6}})},
                                    {Layout(11), Layout({{"a", 5}, {"b", 6}})}}) {
    const auto errors = errors_of(4, [&, first = here, second = there](Transport& transport) {
      const Worker worker({}, transport.rank() == 3 ? second : first, transport);
    });
    for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("layout"));
  }
}

TEST(WeightsOfWorkers, AreRefusedOnAllRanksUnlessTheirSumIsPositiveAndFinite) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  for (const auto& [weights, is_right] :
       std::vector<std::pair<std::vector<double>, bool>>{{{1, 1, 1}, true},
                                                         {{0, 0, 1}, true},
                                                         {{1e-300, 0, 1e300}, true},
                                                         {{1e-300, 1e-300, 0}, true},
                                                         {{0, 0, 0}, false},
                                                         {{1, -1, 1}, false},
                                                         {{1, 1, -1e-9}, false},
                                                         {{nan, 1, 1}, false},
                                                         {{1, 1, infinity}, false},
                                                         {{1e308, 1e308, 1e308}, false}}) {
    for (const ExchangeCase& setup : bodies::every_exchange_case()) {
      Plan plan = bodies::plan_of("topk:ratio=0.1", setup);
      plan.weights = weights;
      const auto errors = errors_of(3, [&](Transport& transport) {
        Runner run(plan, transport);
        run.step(0);
      });
      for (const std::string& error : errors) {
        EXPECT_EQ(error.empty(), is_right) << error << " for " << weights[0] << " " << weights[1] << " " << weights[2];
      }
    }
  }
}

// Entries of weight 0 change nothing, and are not an error.
TEST(WeightsOfWorkers, MayBeZero) {
  for (const ExchangeCase& setup : bodies::every_exchange_case()) {
    for (const std::string& spec : example_specs()) {
      for (const char* codec : {"auto", "auto:values=bf16"}) {
        Plan plan = bodies::plan_of(spec, setup, codec);
        plan.weights = {1, 0, 2};
        run_on_threads(3, [&](Transport& transport) { bodies::replicas_stay_equal(transport, plan, 4); });
      }
    }
  }
}

TEST(DownlinksOfWorkers, AreRefusedWhereThereIsNoServer) {
  for (const char* exchange : {"dense", "allgather"}) {
    const auto errors = errors_of(2, [&](Transport& transport) {
      const Worker worker({.exchange = exchange, .downlink = "topk:ratio=0.01"}, 1000, transport);
    });
    for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("downlink"));
  }
}

// Chunks are cut off at the end of a region, on all ranks.
TEST(DownlinksOfWorkers, MayHaveChunksThatAreLargerThanARegion) {
  for (const char* exchange : {"server", "sharded"}) {
    Plan plan = bodies::plan_of("topk:ratio=0.1", {exchange, true});
    plan.config.downlink = "topk:k=20,chunk=64";
    plan.layout = 100;  // no region of 8 has more than 16 entries, and one has none
    run_on_threads(8, [&](Transport& transport) { bodies::replicas_stay_equal(transport, plan, 4); });
  }
}

// Also if only servers use the wrong option, or only an `auto` that does not go dense.
TEST(WrongOptions, AreRefusedOnAllRanks) {
  const std::vector<std::pair<WorkerConfig, std::string>> wrong = {
      {{.exchange = "server", .downlink = "topk:ratio=7"}, "ratio=7"},
      {{.exchange = "server", .downlink = "no_such"}, "no_such"},
      {{.exchange = "server", .downlink = "topk:ratio=0.1", .downlink_codec = "zip"}, "zip"},
      {{.exchange = "server", .downlink = "topk:ratio=0.1,dense_below=10"}, "dense_below"},
      {{.exchange = "sharded", .downlink = "topk:ratio=0.1,dense_below=10"}, "dense_below"},
      {{.exchange = "sharded", .downlink_codec = "golomb"}, "downlink_codec"},
      {{.exchange = "auto:x=1"}, "x"},
      {{.sparsifier = "topk:ratio=1,colour=red", .exchange = "auto"}, "colour"},
      {{.sparsifier = "dense", .exchange = "auto", .downlink = "no_such"}, "no_such"},
      {{.sparsifier = "dense", .exchange = "auto", .codec = "zip"}, "zip"},
  };
  for (const auto& [config, named] : wrong) {
    const auto errors =
        errors_of(3, [&, &plan = config](Transport& transport) { const Worker worker(plan, 1000, transport); });
    for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr(named));
  }
}

}  // namespace
}  // namespace sparsewire::worker_options_test
