#include "core/registry.h"

#include "exchange/exchange.h"

namespace sparsewire {
namespace {

constexpr ExchangeInfo kInfos[] = {
#define EXCHANGE(name, summary) {#name, summary},
#include "exchange/exchanges.def"
#undef EXCHANGE
};

using Make = std::unique_ptr<Exchange> (*)(Spec& spec, const ExchangePlan& plan, Transport& transport);

constexpr Make kMakers[] = {
#define EXCHANGE(name, summary) make_##name##_exchange,
#include "exchange/exchanges.def"
#undef EXCHANGE
};

}  // namespace

std::span<const ExchangeInfo> exchanges() noexcept { return kInfos; }

std::unique_ptr<Exchange> make_exchange(std::string_view spec_text, const ExchangePlan& plan, Transport& transport) {
  Spec spec(spec_text);
  auto exchange = kMakers[find_by_name(kInfos, spec.name(), "an exchange", "auto")](spec, plan, transport);
  spec.finish();
  return exchange;
}

}  // namespace sparsewire
