#include "text/json.h"

#include <fmt/core.h>

#include "sparsewire/errors.h"

namespace sparsewire::train {

Json parse_json(std::string_view text, JsonComments comments) {
  const auto check_depth = [](int depth, Json::parse_event_t event, const Json& /*value*/) {
    using Event = Json::parse_event_t;
    if ((event == Event::object_start || event == Event::array_start) && depth >= kDeepestJson) {
      throw UsageError(fmt::format("nested more than {} levels deep", kDeepestJson));
    }
    return true;  // keep it
  };
  constexpr bool kThrow = true;
  try {
    return Json::parse(text, check_depth, kThrow, comments == JsonComments::allowed);
  } catch (const Json::exception& error) {  // "[json.exception.parse_error.101] parse error at line 1, ..."
    const std::string_view what = error.what();
    throw UsageError(std::string(what.substr(what.find("] ") + 2)));
  }
}

std::string shown(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace sparsewire::train
