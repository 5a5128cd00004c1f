// How a worker is constructed: all ranks compare their options and share their weights, and `auto` is decided.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <sstream>
#include <type_traits>

#include "codec/value_format.h"
#include "sparsewire/codec.h"
#include "sparsewire/errors.h"
#include "sparsewire/spec.h"
#include "sparsewire/support/crc32c.h"
#include "sparsewire/support/float_mode.h"
#include "worker/options.h"
#include "worker/parts.h"

namespace sparsewire {
namespace {

// What must be the same on every rank, one line for each option and each tensor.
std::string describe(const WorkerConfig& config, const Layout& layout) {
  std::string lines;
  for_each_option(config, [&](const char* name, const auto& value, AcrossRanks across_ranks) {
    if (across_ranks == AcrossRanks::may_differ) return;
    using Value = std::remove_cvref_t<decltype(value)>;
    if constexpr (std::is_same_v<Value, Scope>) {
      lines += fmt::format("{} '{}'\n", name, value == Scope::layer ? "layer" : "model");
    } else if constexpr (std::is_same_v<Value, Average>) {
      lines += fmt::format("{} '{}'\n", name, value == Average::senders ? "senders" : "all");
    } else if constexpr (!std::is_pointer_v<Value>) {
      lines += fmt::format("{} '{}'\n", name, value);
    }
  });
  for (const TensorRange& tensor : layout.tensors()) {
    lines += fmt::format("layout with {} entries of tensor '{}'\n", tensor.size, tensor.name);
  }
  return lines;
}

// The first difference between what rank 0 and the others described, as the text of an error.
std::string first_difference(const std::vector<std::vector<std::byte>>& all) {
  const auto other = std::find_if(all.begin(), all.end(), [&](const auto& bytes) { return bytes != all[0]; });
  const auto as_lines = [](const std::vector<std::byte>& bytes) {
    return std::istringstream(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  };
  std::istringstream first = as_lines(all[0]);
  std::istringstream second = as_lines(other == all.end() ? all[0] : *other);
  std::string here;
  std::string there;
  do {
    if (!std::getline(first, here)) here = "no more layout";
    if (!std::getline(second, there)) there = "no more layout";
  } while (here == there && (first || second));
  return fmt::format("[worker] rank {} has {}, but rank 0 has {}: all ranks need the same options and layout",
                     other - all.begin(), there, here);
}

// Collective. Throws UsageError, which names the first difference between rank 0 and another rank. Rank 0 finds it.
[[noreturn]] void refuse_difference(const std::string& mine, Transport& transport) {
  std::vector<std::vector<std::byte>> all;
  transport.gather(0, std::as_bytes(std::span(mine)), all);
  std::vector<std::byte> found;
  if (transport.rank() == 0) {
    const std::string text = first_difference(all);
    const auto bytes = std::as_bytes(std::span(text));
    found.assign(bytes.begin(), bytes.end());
  }
  transport.broadcast(0, found);
  throw UsageError(std::string(reinterpret_cast<const char*>(found.data()), found.size()));
}

// Collective: the weights of all ranks, divided by their sum. Throws UsageError, on all ranks, if their options differ.
std::vector<float> agree_on_weights(const WorkerConfig& config, const Layout& layout, Transport& transport,
                                    ControlGather& control, std::uint32_t& identity) {
  struct Introduction {
    double weight;
    std::uint32_t checksum;
    std::uint32_t number;  // tells workers with the same options apart
  };
  const std::string description = describe(config, layout);
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  const Introduction mine{config.weight, crc32c(std::as_bytes(std::span(description))),
                          static_cast<std::uint32_t>(now)};
  std::vector<Introduction> all;
  control.gather(mine, all);
  const auto is_different = [&](const Introduction& theirs) { return theirs.checksum != all[0].checksum; };
  if (std::any_of(all.begin(), all.end(), is_different)) refuse_difference(description, transport);
  identity = mine.checksum ^ all[0].number;

  double sum = 0;
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (!std::isfinite(all[r].weight) || all[r].weight < 0) {
      throw UsageError(fmt::format("[worker] the weight of rank {}, {}, is not in [0, inf)", r, all[r].weight));
    }
    sum += all[r].weight;
  }
  if (!(sum > 0) || !std::isfinite(sum)) {
    throw UsageError(fmt::format("[worker] the weights of all ranks add up to {}, which is not in (0, inf)", sum));
  }
  std::vector<float> shares;
  for (const Introduction& theirs : all) shares.push_back(static_cast<float>(theirs.weight / sum));
  return shares;
}

bool is_auto(const WorkerConfig& config) {
  const Spec spec(config.exchange);
  if (spec.name() != auto_exchange().info.name) return false;
  spec.finish();
  return true;
}

// The options with `auto` and an empty downlink_codec replaced by what they stand for. Throws UsageError.
WorkerConfig resolved(WorkerConfig config) {
  if (is_auto(config)) config.exchange = auto_exchange().sparse;
  if (!config.downlink_codec.empty() && config.downlink.empty()) {
    throw UsageError(fmt::format("[worker] downlink_codec '{}' needs a downlink", config.downlink_codec));
  }
  if (config.downlink_codec.empty()) config.downlink_codec = config.codec;
  if (config.downlink_feedback != "ef" && config.downlink_feedback != "none") {
    throw UsageError(fmt::format("[worker] downlink_feedback '{}' is neither ef nor none", config.downlink_feedback));
  }
  if (config.downlink_feedback != "ef" && config.downlink.empty()) {
    throw UsageError("[worker] downlink_feedback none needs a downlink");
  }
  return config;
}

// Throws UsageError where the options need the sum over all workers, which a mean of senders does not tell.
void check_average(const WorkerConfig& config, const Sifter& sifter, const Exchange& exchange) {
  if (config.average == Average::all) return;
  if (exchange.is_dense() && Spec(config.sparsifier).name() != "dense") {
    throw UsageError(
        fmt::format("[worker] average senders: the exchange '{}' does not tell who sent an entry of '{}'; take another "
                    "exchange, or average all",
                    config.exchange, config.sparsifier));
  }
  if (sifter.traits().observes && exchange.undivided() == nullptr) {
    throw UsageError(
        fmt::format("[worker] average senders: '{}' needs the sum over all workers, which the exchange '{}' does not "
                    "bring; take exchange allgather, or average all",
                    config.sparsifier, config.exchange));
  }
}

SifterContext worker_context(const WorkerConfig& config, const Layout& layout, const Transport& transport,
                             const std::vector<float>& weights) {
  SifterContext context = make_context(config, layout);
  context.rank = transport.rank();
  context.ranks = transport.size();
  context.weight = static_cast<double>(weights[static_cast<std::size_t>(transport.rank())]);
  return context;
}

// A full vector has the width of the uplink's values, as far as an all-reduce can add them.
std::string dense_codec(const WorkerConfig& config) {
  return std::string(reducible_format(value_format_of(config.codec)).info.example);
}

double frame_bits(double entries, std::uint64_t dim, const ValueBits& value_bits) {
  const auto all = static_cast<double>(dim);
  if (entries >= all) return all * value_bits.of_all;
  return entries * (entropy_bound_index_bits(dim, static_cast<std::uint64_t>(entries)) + value_bits.of_some);
}

// Collective where there is a downlink: the servers' budgets depend on their regions.
StepCost make_cost(const WorkerConfig& config, std::uint64_t dim, int ranks, Exchange& exchange,
                   ControlGather& control) {
  StepCost cost{.dim = dim,
                .ranks = ranks,
                .value_bits = expected_value_bits(config.codec),
                .union_bits = expected_value_bits(exact_format().info.example),
                .dense_value_bits = value_format_of(dense_codec(config)).bits,
                .downlink_bits = {}};
  if (!config.downlink.empty()) {
    const Sifter* const server = exchange.server();
    std::vector<double> budgets;
    control.gather(server == nullptr ? 0.0 : server->expected_entries(), budgets);
    double entries = 0;
    for (const double theirs : budgets) entries += theirs;
    cost.downlink_bits = frame_bits(entries, dim, expected_value_bits(config.downlink_codec));
  }
  return cost;
}

}  // namespace

// Frames and full vectors both move (P-1)/P of what is counted here, so P counts only where the union is sent back.
bool StepCost::is_dense_shorter(double entries) const {
  const double down = downlink_bits.value_or(frame_bits(entries * ranks, dim, union_bits));
  return frame_bits(entries, dim, value_bits) + down >= 2 * static_cast<double>(dim) * dense_value_bits;
}

Worker::Parts::Parts(const WorkerConfig& given, Layout tensors, Transport& engine)
    : layout(std::move(tensors)),
      transport(engine),
      control(engine),
      weights(
          agree_on_weights(given, layout, engine, control, identity)),  // first: errors below are the same on all ranks
      given_exchange(given.exchange),
      config(resolved(given)),
      exchange(make_exchange(config.exchange, {config, layout.dim(), weights}, engine)),
      sifter(config.sparsifier, config.feedback, worker_context(config, layout, engine, weights)),
      observes(sifter.traits().observes),
      counts_vary(sifter.traits().entries_vary) {
  check_average(config, sifter, *exchange);
  if (is_auto(given)) {
    ExchangePlan plan{config, layout.dim(), weights};
    plan.config.codec = dense_codec(config);
    plan.config.downlink.clear();
    dense_exchange = make_exchange(auto_exchange().full, plan, engine);
    cost = make_cost(config, layout.dim(), engine.size(), *exchange, control);
    goes_dense = cost->is_dense_shorter(sifter.expected_entries());
  }
  total.clear(layout.dim());
}

Worker::Worker(const WorkerConfig& config, Layout layout, Transport& transport)
    : parts_(make_parts(config, std::move(layout), transport)) {}

std::unique_ptr<Worker::Parts> Worker::make_parts(const WorkerConfig& config, Layout layout, Transport& transport) {
  const StandardFloatMode mode;  // for the workers' shares, and numbers in specs
  try {
    return std::make_unique<Parts>(config, std::move(layout), transport);
  } catch (const UsageError&) {  // all ranks throw it
    throw;
  } catch (const std::exception& error) {
    transport.fail(error.what());
    throw;
  }
}

std::vector<ExchangeChoice> exchange_choices() {
  std::vector<ExchangeChoice> choices;
  const auto add = [&](const ExchangeInfo& info) {
    choices.push_back({info.name, info.summary, info.name, info.takes_downlink});
  };
  for (const ExchangeInfo& info : exchanges()) add(info);
  add(auto_exchange().info);
  return choices;
}

}  // namespace sparsewire
