// Top-k one way and both ways, against SGD: accuracy, and what the server sends back.
//
// Zou, De Sterck, Liu, Downlink compression improves TopK sparsification, 2022: MLPs and CNNs on MNIST and
// Fashion-MNIST, batches of 10, K = Kd = 0.1 %, memories hold lr*gradient, no momentum, 100 passes, the learning rate
// tuned for each method.
#include "reproduce/deep.h"
#include "reproduce/downlink_deep_verdict.h"

namespace sparsewire::reproduce {
namespace {

constexpr const char* kUplink = "topk | feedback=ef:scale=lr name=uplink";
constexpr const char* kBothWays = "topk | downlink=topk feedback=ef:scale=lr name=both_ways";
constexpr const char* kNoMemory =
    "topk | downlink=topk feedback=ef:scale=lr downlink_feedback=none name=no_server_memory";

// `lrs`: around the paper's, with 20 workers.
Experiment downlink(std::string_view name, std::string_view claim, const std::string& data, const Rates& lrs,
                    std::vector<Published> published) {
  const Recipe recipe{.problem = data + "_mlp",
                      .passes = {3, 10, 20},
                      .tune_passes = {1, 3, 10},
                      .lrs = lrs,
                      .lrs_of_many = {0.1, 0.2, 0.4}};
  Recipe of_table = recipe;
  of_table.passes = {3, 20, 100};
  of_table.tune_passes = {1, 5, 20};
  of_table.quick_passes = 3;
  Recipe with_cnn = recipe;
  with_cnn.problem = data + "_cnn";
  const Recipe once{.problem = data + "_mlp", .passes = 2, .lrs = Rates{lrs[1]}, .lrs_of_many = {0.2}, .is_once = true};
  return {.name = name,
          .paper = "arXiv:2209.15203",
          .claim = claim,
          .recipe = recipe,
          .methods = Texts{"dense | name=sgd", kUplink, kBothWays},
          .ratios = Texts{"0.001"},
          .parts = {{.name = "table",
                     .title = "the paper's table",
                     .for_each_workers = {{20}, {20}, {20, 100}},
                     .recipe = of_table},
                    {.name = "union",
                     .title = "what the server sends back",
                     .is_in_quick = false,
                     .for_each_workers = Numbers{10, 20, 50, 100},
                     .recipe = once,
                     .methods = Texts{kUplink, kBothWays}},
                    {.name = "shards",
                     .title = "sorted by label, two shards for each worker",
                     .is_in_quick = false,
                     .settings = {{"split", "shards:per_worker=2"}}},
                    {.name = "cnn", .title = "the convolutional network", .is_in_quick = false, .recipe = with_cnn},
                    {.name = "memory",
                     .title = "with and without the server's memory",
                     .is_in_quick = false,
                     .methods = Texts{kBothWays, kNoMemory}}},
          .alone = "one worker alone has no server, so there is nothing to compress",
          .judge = [published = std::move(published)](const Outcomes& outcomes, Result& result) {
            judge_downlink(outcomes, published, result);
          }};
}

}  // namespace

Experiment downlink_mnist() {
  return downlink("downlink-mnist",
                  "at 0.1 % compressing both ways is as accurate on MNIST as compressing the uplink alone and as SGD, "
                  "and the server's answer is about N times smaller",
                  "mnist", {0.03, 0.06, 0.12}, {{20, .9749, .9763, .9770}, {100, .9750, .9738, .9766}});
}

Experiment downlink_fashion() {
  return downlink("downlink-fashion",
                  "at 0.1 % compressing both ways is as accurate on Fashion-MNIST as compressing the uplink alone and "
                  "as SGD, and the server's answer is about N times smaller",
                  "fashion", {0.04, 0.08, 0.16}, {{20, .8898, .8884, .8813}, {100, .8855, .8856, .8796}});
}

}  // namespace sparsewire::reproduce
