#include "core/text.h"
#include "exchange/exchange.h"
#include "sparsewire/errors.h"

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
  std::string names;
  for (std::size_t i = 0; i < std::size(kInfos); ++i) {
    if (kInfos[i].name == spec.name()) {
      auto exchange = kMakers[i](spec, plan, transport);
      spec.finish();
      return exchange;
    }
    names += text(names.empty() ? "" : ", ", kInfos[i].name);
  }
  throw UsageError(text("'", spec.name(), "' is not an exchange; there are ", names, ", auto"));
}

}  // namespace sparsewire
