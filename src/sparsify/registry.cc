#include "sparsify/registry.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <mutex>
#include <utility>

#include "core/names.h"
#include "kernels/simd.h"
#include "sparsewire/errors.h"
#include "sparsify/chosen_outside.h"

namespace sparsewire {
namespace {

using Make = std::unique_ptr<FusedSparsifier> (*)(Spec& spec, const SifterContext& context);

constexpr Make kMakers[] = {
#define SPARSIFIER(name, summary, example) make_##name,
#include "sparsify/sparsifiers.def"
#undef SPARSIFIER
};

struct Registered {
  SparsifierInfo info;
  std::shared_ptr<const SparsifierFactory> factory;  // shared with a caller that is in it while it is removed
};

// Sparsifiers from outside the library. A function, so that they can be registered before main().
struct Outside {
  std::mutex mutex;
  std::vector<Registered> registered;
};
Outside& outside() {
  static Outside all;
  return all;
}

// The factory of a registered sparsifier, or null.
std::shared_ptr<const SparsifierFactory> find_factory(std::string_view name) {
  const std::lock_guard lock(outside().mutex);
  for (const Registered& one : outside().registered) {
    if (one.info.name == name) return one.factory;
  }
  return nullptr;
}

bool is_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

std::unique_ptr<FusedSparsifier> make(Spec& spec, const SifterContext& context) {
  const std::string& name = spec.name();
  if (const auto factory = find_factory(name)) {
    std::unique_ptr<Sparsifier> made = (*factory)(spec, context);
    if (made == nullptr) throw UsageError(fmt::format("[{}] its factory returned no sparsifier", name));
    return wrap(name, std::move(made), context);
  }
  const std::vector<SparsifierInfo> all = sparsifiers();
  const std::size_t found = find_by_name(all, name, "a sparsifier");
  if (found >= std::size(kMakers)) throw UsageError(fmt::format("[{}] was unregistered just now", name));
  return kMakers[found](spec, context);
}

// REQUIRES: the mutex of outside() is locked.
std::vector<SparsifierInfo> all_while_locked() {
  std::vector<SparsifierInfo> all = {
#define SPARSIFIER(name, summary, example) {#name, summary, example},
#include "sparsify/sparsifiers.def"
#undef SPARSIFIER
  };
  for (const Registered& one : outside().registered) all.push_back(one.info);
  return all;
}

}  // namespace

std::vector<SparsifierInfo> sparsifiers() {
  const std::lock_guard lock(outside().mutex);
  return all_while_locked();
}

Registration register_sparsifier(SparsifierInfo info, SparsifierFactory factory) {
  if (!is_name(info.name)) {
    throw UsageError(fmt::format("'{}' is not a name for a sparsifier: take letters, digits and _", info.name));
  }
  if (!factory) throw UsageError(fmt::format("[{}] has no factory", info.name));
  std::string name(info.name);
  const std::lock_guard lock(outside().mutex);
  for (const SparsifierInfo& other : all_while_locked()) {
    if (other.name == name) throw UsageError(fmt::format("there is a sparsifier '{}' already", name));
  }
  outside().registered.push_back({std::move(info), std::make_shared<const SparsifierFactory>(std::move(factory))});
  return Registration(std::move(name));
}

Registration::~Registration() {
  if (name_.empty()) return;
  std::shared_ptr<const SparsifierFactory> last;  // destroyed without the lock: it may be somebody else's code
  const std::lock_guard lock(outside().mutex);
  std::vector<Registered>& all = outside().registered;
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Registered& one) { return one.info.name == name_; });
  if (found == all.end()) return;
  last = std::move(found->factory);
  all.erase(found);
}

Registration::Registration(Registration&& other) noexcept : name_(std::exchange(other.name_, {})) {}

Registration& Registration::operator=(Registration&& other) noexcept {
  std::swap(name_, other.name_);  // `other` unregisters what was here
  return *this;
}

std::unique_ptr<FusedSparsifier> make_sparsifier(std::string_view spec_text, const SifterContext& context) {
  Spec spec(spec_text);
  if (context.ranks < 1 || context.rank < 0 || context.rank >= context.ranks) {
    throw UsageError(fmt::format("[{}] rank={} with ranks={}: the rank must be in [0, ranks)", spec.name(),
                                 context.rank, context.ranks));
  }
  if (!Range{.min = 0, .max = 1}.holds(context.weight)) {
    throw UsageError(fmt::format("[{}] weight={} is not in [0, 1]", spec.name(), context.weight));
  }
  kernels::choose_simd();  // may throw; the kernels must not
  auto sparsifier = make(spec, context);
  spec.finish();
  return sparsifier;
}

}  // namespace sparsewire
