// How a worker comes to be: everybody's weight, whether all have the same plan, and what `auto` stands for.
#include <fmt/core.h>

#include <chrono>
#include <cmath>

#include "core/crc32c.h"
#include "core/spec.h"
#include "sparsewire/codec.h"
#include "sparsewire/errors.h"
#include "transport/all_gather_values.h"
#include "worker/parts.h"

namespace sparsewire {
namespace {

// What must be the same on every rank, as text.
std::string common(const WorkerConfig& config, const Layout& layout) {
  std::string all = fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n", config.sparsifier, config.feedback,
                                config.exchange, config.codec, config.downlink, config.downlink_codec,
                                static_cast<int>(config.scope), config.seed, config.check_every);
  for (const TensorRange& tensor : layout.tensors()) all += fmt::format("{} {}\n", tensor.name, tensor.size);
  return all;
}

// Everybody's weight, divided by their sum. Throws UsageError if ranks were not given the same plan.
std::vector<float> agree_on_weights(const WorkerConfig& config, const Layout& layout, Transport& transport,
                                    std::uint32_t& identity) {
  struct Introduction {
    double weight;
    std::uint32_t checksum;
    std::uint32_t number;  // tells workers with the same plan apart
  };
  const std::string plan = common(config, layout);
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  const Introduction mine{config.weight, crc32c(std::as_bytes(std::span(plan))), static_cast<std::uint32_t>(now)};
  std::vector<double> weights;
  double sum = 0;
  const std::vector<Introduction> all = all_gather_values(transport, mine);
  identity = mine.checksum ^ all[0].number;
  for (const Introduction& theirs : all) {
    const std::size_t r = weights.size();
    if (theirs.checksum != mine.checksum) {
      throw UsageError(
          fmt::format("[worker] rank {} has another layout or other options than rank {}", r, transport.rank()));
    }
    if (!std::isfinite(theirs.weight) || theirs.weight < 0) {
      throw UsageError(fmt::format("[worker] the weight of rank {}, {}, is not in [0, inf)", r, theirs.weight));
    }
    weights.push_back(theirs.weight);
    sum += theirs.weight;
  }
  if (!(sum > 0) || !std::isfinite(sum))
    throw UsageError(fmt::format("[worker] the weights of all ranks add up to {}", sum));
  std::vector<float> shares;
  for (const double weight : weights) shares.push_back(static_cast<float>(weight / sum));
  return shares;
}

// Entries that a sparsifier is expected to send; all of them if its spec does not tell.
double expected_entries(const std::string& sparsifier, std::uint64_t dim) {
  Spec spec(sparsifier);
  if (spec.has("ratio")) return spec.number("ratio", kRatioRange).value_or(1) * static_cast<double>(dim);
  if (spec.has("k")) return static_cast<double>(spec.integer("k", 1, ~std::uint64_t{0}).value_or(dim));
  return static_cast<double>(spec.name() == "threshold" ? 0 : dim);
}

double bits_of_values(const std::string& codec) {
  Spec spec(codec);
  std::vector<std::string_view> names;
  for (const CodecInfo& format : value_formats()) names.push_back(format.name);
  const std::string values = spec.choice("values", names);
  return values == "f32"                       ? 32
         : values == "f16" || values == "bf16" ? 16
         : values == "int8"                    ? 8
         : values == "int4"                    ? 4
                                               : 2;
}

bool is_auto(const WorkerConfig& config) {
  const Spec spec(config.exchange);
  if (spec.name() != "auto") return false;
  spec.finish();
  return true;
}

// With what `auto` and an empty downlink_codec stand for. Throws UsageError.
WorkerConfig resolved(WorkerConfig config) {
  if (is_auto(config)) config.exchange = "sharded";
  const std::string exchange = Spec(config.exchange).name();
  if (!config.downlink.empty() && (exchange == "dense" || exchange == "allgather")) {
    throw UsageError(fmt::format("[{}] takes no downlink: server and sharded do", exchange));
  }
  if (!config.downlink_codec.empty() && config.downlink.empty()) {
    throw UsageError(fmt::format("[worker] a downlink_codec, '{}', needs a downlink", config.downlink_codec));
  }
  if (config.downlink_codec.empty()) config.downlink_codec = config.codec;
  return config;
}

SifterContext context_of(const WorkerConfig& config, const Layout& layout, const Transport& transport, float weight) {
  SifterContext context{.layout = layout, .scope = config.scope};
  context.rank = transport.rank();
  context.ranks = transport.size();
  context.weight = static_cast<double>(weight);
  context.seed = config.seed;
  context.pool = config.pool;
  return context;
}

ExchangePlan plan_of(const WorkerConfig& config, const Layout& layout, const std::vector<float>& weights) {
  return {.dim = layout.dim(),
          .weights = weights,
          .codec = config.codec,
          .downlink = config.downlink,
          .downlink_codec = config.downlink_codec,
          .seed = config.seed,
          .first_step = 0,
          .pool = config.pool};
}

}  // namespace

std::string dense_codec(const WorkerConfig& config) {
  return bits_of_values(config.codec) < 32 ? "auto:values=bf16" : "auto:values=f32";
}

// What both move is proportional to (P-1)/P, so P counts only where the union is sent back.
bool is_dense_shorter(const WorkerConfig& config, double entries, std::uint64_t dim, int ranks) {
  const auto size = static_cast<double>(dim);
  const auto frame_bits = [&](double count, const std::string& codec) {
    const double kept = std::min(count, size);
    return kept * (entropy_bound_index_bits(dim, static_cast<std::uint64_t>(kept)) + bits_of_values(codec));
  };
  const double down = config.downlink.empty()
                          ? frame_bits(entries * ranks, "auto")
                          : frame_bits(expected_entries(config.downlink, dim), config.downlink_codec);
  return frame_bits(entries, config.codec) + down >= 2 * size * bits_of_values(dense_codec(config));
}

Worker::Parts::Parts(const WorkerConfig& given, Layout tensors, Transport& engine)
    : layout(std::move(tensors)),
      transport(engine),
      weights(agree_on_weights(given, layout, engine, identity)),  // before anybody finds fault with the rest
      config(resolved(given)),
      exchange(make_exchange(config.exchange, plan_of(config, layout, weights), engine)),
      sifter(config.sparsifier, config.feedback,
             context_of(config, layout, engine, weights[static_cast<std::size_t>(engine.rank())])),
      observes(Spec(config.sparsifier).name() == "regtopk"),
      counts_vary(Spec(config.sparsifier).name() == "threshold"),
      server_votes_alone(Spec(config.exchange).name() == "server") {
  if (is_auto(given)) {
    ExchangePlan plan = plan_of(config, layout, weights);
    plan.codec = dense_codec(config);
    plan.downlink.clear();
    dense_exchange = make_exchange("dense", plan, engine);
    goes_dense =
        is_dense_shorter(config, expected_entries(config.sparsifier, layout.dim()), layout.dim(), engine.size());
  }
  total.clear(layout.dim());
}

Worker::Worker(const WorkerConfig& config, Layout layout, Transport& transport)
    : parts_(std::make_unique<Parts>(config, std::move(layout), transport)) {}

std::vector<ExchangeChoice> exchange_choices() {
  std::vector<ExchangeChoice> choices;
  for (const ExchangeInfo& info : exchanges()) choices.push_back({info.name, info.summary, info.name});
  choices.push_back({"auto", "sharded, or dense if no longer", "auto"});
  return choices;
}

}  // namespace sparsewire
