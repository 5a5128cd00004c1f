#include "loop/run_or_fail.h"

#include <fmt/core.h>

#include <cstddef>
#include <exception>
#include <vector>

#include "loop/agree.h"
#include "sparsewire/errors.h"

namespace sparsewire::train {
namespace {

constexpr char kUsage = 'u';
constexpr char kFailed = 'f';

// What `work` threw, after a letter for its kind; empty if it threw nothing.
std::string outcome(const std::function<void()>& work) {
  try {
    work();
    return {};
  } catch (const UsageError& error) {
    return std::string(1, kUsage) + error.what();
  } catch (const SharedError& error) {
    return std::string(1, error.is_usage() ? kUsage : kFailed) + error.what();
  } catch (const std::bad_alloc&) {
    return std::string(1, kFailed) + "out of memory";
  } catch (const std::exception& error) {
    return std::string(1, kFailed) + error.what();
  } catch (...) {
    return std::string(1, kFailed) + "an exception that is no std::exception";
  }
}

}  // namespace

void run_or_fail_on_all(Transport& transport, const std::function<void()>& work) {
  const std::string mine = outcome(work);
  const auto all = tell_all(transport, std::as_bytes(std::span(mine)));
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].empty()) continue;
    const std::string heard(reinterpret_cast<const char*>(all[r].data()), all[r].size());
    if (heard[0] != kUsage && heard[0] != kFailed) {
      throw TransportError(fmt::format("rank {} is not at the same call as the other ranks", r), static_cast<int>(r));
    }
    // Rank 0 fails first where all fail alike; the number of another one says on which machine to look.
    throw SharedError((r == 0 ? "" : fmt::format("rank {}: ", r)) + heard.substr(1), heard[0] == kUsage);
  }
}

}  // namespace sparsewire::train
