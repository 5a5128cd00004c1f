#include <fmt/core.h>

#include "core/names.h"
#include "exchange/exchange.h"
#include "sparsewire/errors.h"

namespace sparsewire {
namespace {

constexpr ExchangeInfo kInfos[] = {
#define EXCHANGE(name, takes_downlink, auto_use, summary) {#name, takes_downlink, AutoUse::auto_use, summary},
#include "exchange/exchanges.def"
#undef EXCHANGE
};

using Make = std::unique_ptr<Exchange> (*)(Spec& spec, const ExchangePlan& plan, Transport& transport);

constexpr Make kMakers[] = {
#define EXCHANGE(name, takes_downlink, auto_use, summary) make_##name##_exchange,
#include "exchange/exchanges.def"
#undef EXCHANGE
};

constexpr std::string_view used_for(AutoUse use) {
  for (const ExchangeInfo& info : kInfos) {
    if (info.auto_use == use) return info.name;
  }
  return {};
}

constexpr AutoExchange kAuto = {{"auto", true, AutoUse::nothing, "frames, or all values where that is shorter"},
                                used_for(AutoUse::sparse_steps),
                                used_for(AutoUse::full_steps)};
static_assert(!kAuto.sparse.empty() && !kAuto.full.empty());

// "server or sharded"
std::string names_with_servers() {
  std::string names;
  for (const ExchangeInfo& info : kInfos) {
    if (info.takes_downlink) names += fmt::format("{}{}", names.empty() ? "" : " or ", info.name);
  }
  return names;
}

}  // namespace

const AutoExchange& auto_exchange() noexcept { return kAuto; }
std::span<const ExchangeInfo> exchanges() noexcept { return kInfos; }

std::unique_ptr<Exchange> make_exchange(std::string_view spec_text, const ExchangePlan& plan, Transport& transport) {
  Spec spec(spec_text);
  const std::size_t number = find_by_name(kInfos, spec.name(), "an exchange", kAuto.info.name);
  if (!plan.config.downlink.empty() && !kInfos[number].takes_downlink) {
    throw UsageError(fmt::format("[{}] has no server, so it takes no downlink: leave out '{}', or take {}", spec.name(),
                                 plan.config.downlink, names_with_servers()));
  }
  auto exchange = kMakers[number](spec, plan, transport);
  spec.finish();
  return exchange;
}

}  // namespace sparsewire
