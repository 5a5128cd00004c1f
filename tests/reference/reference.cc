#include "reference/reference.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "reference/philox.h"

namespace sparsewire::reference {
namespace {

using Entries = std::vector<std::uint32_t>;

// Sparsifiers that choose in each unit separately.
class PerUnit : public Reference {
 public:
  using Reference::Reference;

 protected:
  std::vector<std::uint32_t> choose(Round& round, float /*scale*/) final {
    const Partition all = partition(keys_, setting_, step_);
    const std::vector<float> magnitude = magnitudes(round.accumulated);
    Entries chosen = non_zero(all.whole, round.accumulated);
    for (std::size_t number = 0; number < all.units.size(); ++number) {
      const Entries more = choose_in(all.units[number], number, magnitude);
      chosen.insert(chosen.end(), more.begin(), more.end());
    }
    return chosen;
  }

  virtual Entries choose_in(const Unit& unit, std::uint64_t number, const std::vector<float>& magnitude) = 0;

  Stream stream() const {
    return {keys_.count("seed", setting_.seed), step_,
            keys_.word("shared", "false") == "true" ? 0U : static_cast<std::uint32_t>(setting_.rank), setting_.role};
  }
};

class TopK final : public PerUnit {
 public:
  using PerUnit::PerUnit;

 private:
  Entries choose_in(const Unit& unit, std::uint64_t /*number*/, const std::vector<float>& magnitude) override {
    return largest(unit.entries, magnitude, magnitude, unit.k);
  }
};

class RTopK final : public PerUnit {
 public:
  using PerUnit::PerUnit;

 private:
  Entries choose_in(const Unit& unit, std::uint64_t /*number*/, const std::vector<float>& magnitude) override {
    const std::uint64_t n = unit.entries.size();
    const double multiple = std::floor(keys_.number("r", 2) * static_cast<double>(unit.k) + 0.5);
    const std::uint64_t wanted =
        keys_.has("r_ratio") ? k_of(keys_.number("r_ratio", 0), n) : static_cast<std::uint64_t>(multiple);
    Entries pool = largest(unit.entries, magnitude, magnitude, std::min(n, std::max(unit.k, wanted)));
    const Stream random = stream();
    std::vector<std::pair<std::uint32_t, std::uint32_t>> by_hash;
    for (const std::uint32_t i : pool) by_hash.emplace_back(random.block(i)[0], i);
    std::sort(by_hash.begin(), by_hash.end());
    if (by_hash.size() > unit.k) by_hash.resize(unit.k);
    pool.clear();
    for (const auto& [hash, i] : by_hash) pool.push_back(i);
    return pool;
  }
};

class RandomK final : public PerUnit {
 public:
  using PerUnit::PerUnit;

 private:
  // Marks the first `count` distinct positions below n in the sequence of draws of a unit.
  std::vector<bool> draw(std::uint64_t number, std::uint64_t n, std::uint64_t count) const {
    Stream random = stream();
    random.seed += number * 0x9E3779B97F4A7C15U;
    std::vector<bool> drawn(n);
    for (std::uint32_t block = 0; count > 0; ++block) {
      const Counter words = random.block(block);
      for (const std::size_t half : {std::size_t{0}, std::size_t{2}}) {
        const std::uint64_t u = (std::uint64_t{words[half + 1]} << 32U) | words[half];
        const std::uint64_t position = high_of_product(u, n);
        if (count == 0 || drawn[position]) continue;
        drawn[position] = true;
        --count;
      }
    }
    return drawn;
  }

  // floor(u*n / 2^64) for n < 2^32, computed in two halves.
  static std::uint64_t high_of_product(std::uint64_t u, std::uint64_t n) {
    const std::uint64_t low = (u & 0xffffffffU) * n;
    const std::uint64_t high = (u >> 32U) * n;
    return (high + (low >> 32U)) >> 32U;
  }

  Entries choose_in(const Unit& unit, std::uint64_t number, const std::vector<float>& /*magnitude*/) override {
    const std::uint64_t n = unit.entries.size();
    const bool draws_the_rest = 2 * unit.k > n;
    const std::vector<bool> drawn = draw(number, n, draws_the_rest ? n - unit.k : unit.k);
    Entries chosen;
    for (std::uint64_t p = 0; p < n; ++p) {
      if (drawn[p] != draws_the_rest) chosen.push_back(unit.entries[p]);
    }
    return chosen;
  }
};

class Dense final : public Reference {
 public:
  using Reference::Reference;

 private:
  std::vector<std::uint32_t> choose(Round& round, float /*scale*/) override {
    Entries all(round.accumulated.size());
    std::iota(all.begin(), all.end(), 0U);
    return all;
  }
};

}  // namespace

std::vector<float> accumulated(std::span<const float> memory, std::span<const float> gradient, float scale,
                               float decay) {
  std::vector<float> a(memory.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    const float kept = decay * memory[i];
    const float added = scale * gradient[i];
    a[i] = kept + added;
  }
  return a;
}

std::vector<std::uint32_t> non_zero(const std::vector<std::uint32_t>& among, const std::vector<float>& a) {
  Entries result;
  std::copy_if(among.begin(), among.end(), std::back_inserter(result), [&](std::uint32_t i) { return a[i] != 0; });
  return result;
}

std::vector<std::uint32_t> largest(const std::vector<std::uint32_t>& among, const std::vector<float>& a,
                                   const std::vector<float>& score, std::uint64_t count) {
  Entries best = non_zero(among, a);
  if (count >= best.size()) return best;
  std::nth_element(
      best.begin(), best.begin() + static_cast<std::ptrdiff_t>(count), best.end(),
      [&](std::uint32_t i, std::uint32_t j) { return score[i] != score[j] ? score[i] > score[j] : i < j; });
  best.resize(count);
  return best;
}

std::vector<float> magnitudes(const std::vector<float>& a) {
  std::vector<float> result;
  result.reserve(a.size());
  for (const float x : a) result.push_back(std::fabs(x));
  return result;
}

double norm2(std::span<const float> numbers) {
  long double sum = 0;
  for (const float x : numbers) sum += static_cast<long double>(x) * static_cast<long double>(x);
  return static_cast<double>(sum);
}

Reference::Reference(std::string_view spec, Setting setting)
    : keys_(spec), setting_(std::move(setting)), step_(setting_.first_step) {}

Round Reference::sift(std::span<const float> gradient, std::vector<float>& memory, float scale, float decay) {
  Round round;
  round.accumulated = accumulated(memory, gradient, scale, decay);
  Entries chosen = choose(round, scale);
  std::sort(chosen.begin(), chosen.end());
  memory = round.accumulated;
  round.out.dim = memory.size();
  for (const std::uint32_t i : chosen) {
    round.out.values.push_back(memory[i]);
    memory[i] = 0.0F;
  }
  if (keys_.name != "dense") round.out.indices = std::move(chosen);
  round.accumulated_norm2 = norm2(round.accumulated);
  round.sent_norm2 = norm2(round.out.values);
  ++step_;
  return round;
}

std::unique_ptr<Reference> make(std::string_view spec, const Setting& setting) {
  const std::string name = Keys(spec).name;
  if (name == "topk") return std::make_unique<TopK>(spec, setting);
  if (name == "randomk") return std::make_unique<RandomK>(spec, setting);
  if (name == "rtopk") return std::make_unique<RTopK>(spec, setting);
  if (name == "threshold") return make_threshold(spec, setting);
  if (name == "regtopk") return make_regtopk(spec, setting);
  if (name == "dense") return std::make_unique<Dense>(spec, setting);
  throw std::invalid_argument("no reference for " + name);
}

}  // namespace sparsewire::reference
