// The exchange `auto`, and where everything travels.
#include <gtest/gtest.h>

#include "unit/bits.h"
#include "unit/exchange_cases.h"

namespace sparsewire::auto_exchange_test {
namespace {

using bodies::ExchangeCase;
using bodies::kSlowBuild;
using bodies::Plan;
using bodies::Runner;

// The update is then the same as with sparsifier and exchange `dense`.
TEST(AutoExchange, SendsEverythingWhenItGoesDense) {
  for (const char* sparsifier : {"topk:ratio=0.9", "randomk:ratio=0.9", "rtopk:ratio=0.8,r=1.1", "regtopk:ratio=0.9"}) {
    for (const char* feedback : {"ef", "momentum:m=0.5", "ef:decay=0.5"}) {
      Plan plan = bodies::plan_of(sparsifier, {"auto"}, "auto:values=bf16");
      plan.config.feedback = feedback;
      plan.weights = {1, 1};
      run_on_threads(2, [&](Transport& transport) {
        Plan dense = plan;
        dense.config.exchange = "dense";
        dense.config.sparsifier = "dense";
        Runner run(plan, transport);
        Runner twin(dense, transport);
        for (std::uint64_t t = 0; t < 5; ++t) {
          EXPECT_TRUE(run.step(t).went_dense);
          twin.step(t);
          EXPECT_TRUE(same_bits(std::span<const float>(run.update), twin.update)) << plan.name() << ", step " << t;
        }
      });
    }
  }
}

// Whether the first step goes dense on three ranks.
bool goes_dense(const Plan& plan) {
  bool went_dense = false;
  run_on_threads(3, [&](Transport& transport) {
    Runner run(plan, transport);
    const char mine = run.step(0).went_dense ? 1 : 0;
    bodies::require_same_everywhere(transport, std::span<const char>(&mine, 1), run.at(0) + ": went_dense");
    if (transport.rank() == 0) went_dense = mine != 0;
  });
  return went_dense;
}

TEST(AutoExchange, SaysWhetherItWentDense) {
  EXPECT_TRUE(goes_dense(bodies::plan_of("dense", {"auto"})));
  EXPECT_TRUE(goes_dense(bodies::plan_of("topk:ratio=1", {"auto"})));
  EXPECT_FALSE(goes_dense(bodies::plan_of("topk:ratio=0.01", {"auto"})));
}

// How many entries travel is decided for each chunk, tensor and layer by itself, and at least one for each.
TEST(AutoExchange, CountsTheEntriesOfChunksLayersAndSmallTensors) {
  const auto tensors = [](std::size_t count, std::uint64_t size) {
    std::vector<TensorRange> all;
    for (std::size_t i = 0; i < count; ++i) all.push_back({"t" + std::to_string(i), size, 0});
    return Layout(std::move(all));
  };
  struct Case {
    const char* sparsifier;
    Layout layout;
    Scope scope;
    bool expected;
  };
  for (const Case& one :
       std::vector<Case>{{"topk:k=64,chunk=64", 1000, Scope::model, true},
                         {"topk:k=1,chunk=64", 1000, Scope::model, false},
                         {"topk:k=64", 1000, Scope::model, false},
                         {"topk:ratio=0.01,chunk=2", 1000, Scope::model, true},  // one of two
                         {"topk:ratio=0.01,chunk=100", 1000, Scope::model, false},
                         {"topk:ratio=0.01,dense_below=200", tensors(10, 100), Scope::model, true},
                         {"topk:ratio=0.01,dense_below=100", tensors(10, 100), Scope::model, false},
                         {"randomk:ratio=0.01,dense_below=200", tensors(10, 100), Scope::model, true},
                         {"rtopk:ratio=0.01,r=2,dense_below=200", tensors(10, 100), Scope::model, true},
                         {"regtopk:ratio=0.01,dense_below=200", tensors(10, 100), Scope::model, true},
                         {"threshold:ratio=0.01,dense_below=200", tensors(10, 100), Scope::model, true},
                         {"threshold:lambda=1e30,dense_below=200", tensors(10, 100), Scope::model, true},
                         {"threshold:ratio=0.01,dense_below=100", tensors(10, 100), Scope::model, false},
                         {"topk:ratio=0.001", tensors(500, 2), Scope::layer, true},  // one of two
                         {"topk:ratio=0.001", tensors(500, 2), Scope::model, false},
                         {"topk:ratio=0.5,warmup_from=0.001,warmup_steps=10", 1000, Scope::model, true},
                         {"topk:ratio=0.001,warmup_from=0.5,warmup_steps=10", 1000, Scope::model, false}}) {
    Plan plan = bodies::plan_of(one.sparsifier, {"auto"}, "auto:values=bf16");
    plan.layout = one.layout;
    plan.config.scope = one.scope;
    EXPECT_EQ(goes_dense(plan), one.expected) << one.sparsifier;
  }
}

// A frame is shorter with packed values, both of the uplink and of the answers.
TEST(AutoExchange, ExpectsPackedValues) {
  Plan plan = bodies::plan_of("topk:ratio=0.3", {"auto"}, "auto:values=bf16");
  plan.layout = 1000;
  EXPECT_FALSE(goes_dense(plan));  // the union is in packed f32
  plan.config.sparsifier = "topk:ratio=0.8";
  plan.config.downlink = "topk:ratio=0.8";
  plan.config.downlink_codec = "auto:values=f32";
  EXPECT_FALSE(goes_dense(plan));
  plan.config.downlink_codec = "auto:values=f32,pack=no";
  EXPECT_TRUE(goes_dense(plan));
  plan.config.downlink_codec = "auto:values=f32";
  plan.config.codec = "auto:values=bf16,pack=no";
  EXPECT_TRUE(goes_dense(plan));
}

TEST(AutoExchange, CountsTheEntriesOfADownlinkWithChunks) {
  Plan plan = bodies::plan_of("topk:ratio=1", {"auto"});
  plan.layout = 1000;
  plan.config.downlink = "topk:k=64,chunk=64";  // sends everything, so that full vectors are no longer
  EXPECT_TRUE(goes_dense(plan));
  plan.config.downlink = "topk:k=32,chunk=64";
  plan.config.sparsifier = "topk:ratio=0.1";
  EXPECT_FALSE(goes_dense(plan));
}

// Also if no option asks for it: a sparsifier may send everything.
TEST(Exchange, SaysThatItWentDenseWheneverAllEntriesTravel) {
  for (const ExchangeCase& setup : bodies::every_exchange_case()) {
    for (const char* sparsifier : {"dense", "threshold:lambda=0", "topk:ratio=1", "topk:k=64,chunk=64"}) {
      Plan plan = bodies::plan_of(sparsifier, setup);
      plan.layout = 200;
      plan.fill = [](std::span<float> gradient, std::uint64_t seed, int rank, std::uint64_t step) {
        bodies::fill_gradient(gradient, seed, rank, step);
        for (float& number : gradient) number = number == 0 ? 1 : number;
      };
      EXPECT_TRUE(goes_dense(plan)) << plan.name();
      plan.fill = [](std::span<float> gradient, std::uint64_t seed, int rank, std::uint64_t step) {
        bodies::fill_gradient(gradient, seed, rank, step);
        if (rank == 1) gradient[7] = 0;  // which `threshold` and `topk` do not send
      };
      const bool sends_zeros = setup.exchange == "dense" || plan.config.sparsifier == "dense" ||
                               (setup.exchange == "auto" && plan.config.sparsifier != "threshold:lambda=0");
      EXPECT_EQ(goes_dense(plan), sends_zeros) << plan.name();
    }
    Plan plan = bodies::plan_of("topk:ratio=0.1", setup);
    EXPECT_EQ(goes_dense(plan), setup.exchange == "dense") << plan.name();
    if (setup.downlink) {  // all entries go up, few come back
      plan.config.sparsifier = "dense";
      EXPECT_FALSE(goes_dense(plan)) << plan.name();
    }
    plan.layout = 0;  // a full vector is no longer than a frame
    EXPECT_EQ(goes_dense(plan), setup.exchange == "dense" || setup.exchange == "auto") << plan.name();
  }
}

// A constant threshold may send few entries in one step and many in the next.
TEST(AutoExchange, GoesDenseAndBackAgain) {
  for (const char* codec : {"auto", "auto:values=bf16"}) {
    for (const char* downlink : {"", "topk:ratio=0.1", "dense"}) {
      for (const char* feedback : {"ef", "none", "momentum:m=0.5"}) {
        for (const int ranks : kSlowBuild ? std::vector{3} : std::vector{1, 3, 8}) {
          Plan plan = bodies::plan_of("threshold:lambda=12", {"auto"}, codec);
          plan.config.downlink = downlink;
          plan.config.feedback = feedback;
          plan.fill = bodies::fill_swinging_gradient;
          run_on_threads(ranks, [&](Transport& transport) {
            bodies::replicas_stay_equal(transport, plan, 30);
            if (plan.config.feedback == "ef" && plan.config.codec == "auto") {
              bodies::nothing_is_lost(transport, plan, 30);
            }
            Runner run(plan, transport);
            int dense = 0;
            for (std::uint64_t t = 0; t < 16; ++t) {
              if (!run.step(t).went_dense) continue;
              ++dense;
              for (const float number : run.worker.memory()) {  // rounding losses may stay
                bodies::require(number == 0 || plan.config.codec != "auto", run.at(t) + ": the memory was not flushed");
              }
            }
            const bool is_always_sparse = plan.config.downlink == "topk:ratio=0.1";  // full vectors are longer
            EXPECT_EQ(dense == 0, is_always_sparse) << plan.name();
            EXPECT_LT(dense, 16) << plan.name();
          });
        }
      }
    }
  }
}

}  // namespace
}  // namespace sparsewire::auto_exchange_test
