// A device that is the host: what a DeviceMemory does, in the slowest and plainest way. So that machines without a GPU
// test everything above it. Its pointers cannot be followed by mistake.
#include "pretended_device/pretended_device.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "core/crc32c_extend.h"
#include "core/number_types.h"
#include "kernels/norm.h"
#include "sparsewire/errors.h"
#include "sparsify/device_memory.h"
#include "sparsify/device_sum.h"
#include "unit/device/arrays.h"

namespace sparsewire {
namespace {

using device_test::other_side;

thread_local std::size_t made_tables = 0;
thread_local bool fails_next = false;

void fail_if_asked_to() {
  if (std::exchange(fails_next, false)) throw std::runtime_error("out of memory");
}

kernels::ScaledGradient here(kernels::ScaledGradient gradient) {
  if (gradient.device != device_test::kDevice) throw UsageError("a gradient on another device");
  if (gradient.size == 0) return gradient;
  if ((std::bit_cast<std::uintptr_t>(gradient.data) >> 62 & 1) == 0) throw UsageError("a pointer of the host");
  gradient.data = other_side(gradient.data);
  return gradient;
}

class PretendedMemory final : public DeviceMemory {
 public:
  explicit PretendedMemory(std::size_t size) : numbers_(size) {}

  std::optional<std::size_t> take(std::span<const Unit> units, const UnitChoices& choices, float factor,
                                  const kernels::SecondChoice* second, const kernels::ScaledGradient* gradient,
                                  TakenEntries& taken) override {
    if (choices.all().size() != units.size()) throw UsageError("a choice for each unit");
    taken = {};
    if (gradient != nullptr) {
      if (gradient->first_add != nullptr) add_first(here(*gradient), *gradient->first_add);
      if (const auto bad = add(here(*gradient))) {
        taken.accumulated_norm2.assign(units.size(), 0);
        return bad;
      }
    }
    indices_.clear();
    values_.clear();
    // As a device, it cannot always choose twice.
    ++steps_;
    taken.chosen_twice = second != nullptr && factor == 1 && steps_ % 3 != 0;
    make_table(units, choices, factor, !taken.chosen_twice ? By::magnitude : second->draw ? By::draw : By::score);
    for (std::size_t u = 0; u < units.size(); ++u) {
      taken.accumulated_norm2.push_back(norm2_of(units[u], numbers_));
      if (taken.chosen_twice && table_[u].second_k > 0) {
        take_twice(units[u], table_[u], *second);
      } else {
        const std::uint32_t kth = take_unit(units[u], table_[u], factor);
        if (table_[u].k > 0) taken.kth = kth;
      }
      taken.ends.push_back(indices_.size());
    }
    taken.indices = indices_;
    taken.values = values_;
    return std::nullopt;
  }

  Gradient take_all() override {
    fail_if_asked_to();
    all_.assign(numbers_.size(), 0.0F);
    numbers_.swap(all_);
    return there(all_);
  }
  void put_all_back() override { numbers_.swap(all_); }

  void restore(const kernels::ScaledGradient& gradient) override {
    kernels::restore(here(gradient), 0, numbers_.size(), numbers_.data());
  }
  double norm2(const kernels::ScaledGradient& gradient) override { return norm2_of(here(gradient)); }
  float number_of(const kernels::ScaledGradient& gradient, std::size_t index) override {
    return kernels::number_at(here(gradient), index);
  }
  void take_at(std::span<const std::uint32_t> indices, bool zeros, float* values) override {
    for (std::size_t i = 0; i < indices.size(); ++i) {
      float& number = numbers_.at(indices[i]);
      values[i] = number;
      if (zeros || number != 0) number = 0;
    }
  }
  void write_at(std::span<const std::uint32_t> indices, const float* values) override {
    for (std::size_t i = 0; i < indices.size(); ++i) numbers_.at(indices[i]) = values[i];
  }
  void add_at(std::span<const std::uint32_t> indices, const float* values) override {
    for (std::size_t i = 0; i < indices.size(); ++i) numbers_.at(indices[i]) += values[i];
  }
  std::optional<std::size_t> add_sum(std::span<const std::uint32_t> indices, const float* values) override {
    before_ = numbers_;
    add_at(indices, values);
    for (const std::uint32_t index : indices) {
      if (kernels::key_of(numbers_[index]) < kernels::kInfinityKey) continue;
      numbers_ = before_;
      return index;
    }
    return std::nullopt;
  }
  void take_back_sum(std::span<const std::uint32_t> indices) override {
    for (const std::uint32_t index : indices) numbers_[index] = before_[index];
  }
  void clear() override { std::fill(numbers_.begin(), numbers_.end(), 0.0F); }
  void read(std::size_t begin, std::span<float> numbers) const override {
    std::copy_n(numbers_.begin() + static_cast<std::ptrdiff_t>(begin), numbers.size(), numbers.begin());
  }
  void write(std::size_t begin, std::span<const float> numbers) override {
    std::copy(numbers.begin(), numbers.end(), numbers_.begin() + static_cast<std::ptrdiff_t>(begin));
  }
  Gradient numbers() const override { return there(numbers_); }

 private:
  enum class By : int { magnitude, draw, score };

  static Gradient there(const std::vector<float>& numbers) {
    Gradient all(numbers);
    if (all.size > 0) all.data = other_side(all.data);
    all.device = device_test::kDevice;
    return all;
  }

  // As a device, it keeps what it has made of the choices until their key is another one.
  void make_table(std::span<const Unit> units, const UnitChoices& choices, float factor, By by) {
    const ChoicesKey key = choices.key(units, factor, static_cast<int>(by));
    if (table_key_ == key) return;
    table_key_ = key;
    table_.assign(choices.all().begin(), choices.all().end());
    for (UnitChoice& one : table_) {
      if (by == By::magnitude) one.second_k = 0;
      if (by == By::score && one.second_k > 0) one.k = one.second_k;
    }
    ++made_tables;
  }

  std::optional<std::size_t> add(const kernels::ScaledGradient& gradient) {
    std::vector<float> sums(numbers_.size());
    std::optional<std::size_t> bad;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      sums[i] = gradient.decay * numbers_[i] + gradient.scale * kernels::number_at(gradient, i);
      if (kernels::key_of(sums[i]) >= kernels::kInfinityKey && !bad) bad = i;
    }
    if (bad) {
      kernels::make_round_trip(gradient, 0, numbers_.size(), numbers_.data());
    } else {
      numbers_ = sums;
    }
    return bad;
  }

  static void add_first(const kernels::ScaledGradient& to, kernels::FirstAdd& first) {
    kernels::ScaledGradient from = here(first.gradient);
    const double norm = std::sqrt(norm2_of(from));
    from.scale = first.clip.scale_of(norm, from.scale);
    if (!kernels::stays_finite(from.decay, from.scale, norm)) throw MayOverflow();
    first.is_added = true;
    auto* const numbers = static_cast<float*>(const_cast<void*>(to.data));
    for (std::size_t i = 0; i < to.size; ++i) {
      numbers[i] = from.decay * numbers[i] + from.scale * kernels::number_at(from, i);
    }
  }

  static double norm2_of(const kernels::ScaledGradient& numbers) {
    std::vector<double> tiles(kernels::tiles_of(numbers.size));
    kernels::TileNorms norm;
    norm.begin(tiles.data(), 0);
    kernels::sum_squares(numbers, 0, numbers.size, norm);
    norm.end();
    return kernels::sum_tiles(tiles.data(), tiles.size());
  }
  static double norm2_of(const Unit& unit, const std::vector<float>& numbers) {
    std::vector<float> sums;
    for (const Segment& segment : unit.segments) {
      for (std::size_t i = 0; i < segment.size; ++i) sums.push_back(numbers[segment.begin + i]);
    }
    return norm2_of(Gradient(sums));
  }

  // Returns the key of the k-th.
  std::uint32_t take_unit(const Unit& unit, const UnitChoice& choice, float factor) {
    std::vector<std::uint32_t> chosen;
    for (const Segment& segment : unit.segments) {
      for (std::size_t i = segment.begin; i < segment.begin + segment.size; ++i) {
        const std::uint32_t lowest = choice.k > 0 ? kernels::kLowestKey : choice.threshold;
        if (kernels::key_of(numbers_[i]) >= lowest) chosen.push_back(static_cast<std::uint32_t>(i));
      }
    }
    const auto key = [&](std::uint32_t i) { return kernels::key_of(factor * numbers_[i]); };
    std::uint32_t kth = 0;
    if (choice.k > 0 && chosen.size() >= choice.k) {
      std::stable_sort(chosen.begin(), chosen.end(), [&](auto a, auto b) { return key(a) > key(b); });
      chosen.resize(choice.k);
      kth = key(chosen.back());
      std::sort(chosen.begin(), chosen.end());
    }
    for (const std::uint32_t i : chosen) {
      indices_.push_back(i);
      values_.push_back(numbers_[i]);
      numbers_[i] = 0;
    }
    return kth;
  }

  // By the second choice: of the largest by a hash, or of all by a score.
  void take_twice(const Unit& unit, const UnitChoice& choice, const kernels::SecondChoice& second) {
    const std::vector<float> sums = numbers_;
    const std::size_t begin = indices_.size();
    take_unit(unit, second.draw ? choice : UnitChoice{.threshold = kernels::kLowestKey}, 1);
    std::vector<std::uint32_t> taken(indices_.begin() + static_cast<std::ptrdiff_t>(begin), indices_.end());
    std::vector<std::uint64_t> keys(numbers_.size());
    for (const std::uint32_t i : taken) keys[i] = second.draw ? ~second.draw->block(i)[0] : kernels::key_of(sums[i]);
    for (const kernels::LastRound& last : second.last_round) {
      const float factor = second.regularisation->factor_at(last, sums[last.index]);
      if (sums[last.index] != 0) keys[last.index] = kernels::key_of(factor * std::abs(sums[last.index]));
    }
    std::stable_sort(taken.begin(), taken.end(), [&](auto a, auto b) { return keys[a] > keys[b]; });
    if (taken.size() > choice.second_k) taken.resize(choice.second_k);
    std::sort(taken.begin(), taken.end());
    numbers_ = sums;
    indices_.resize(begin);
    values_.resize(begin);
    for (const std::uint32_t i : taken) {
      indices_.push_back(i);
      values_.push_back(numbers_[i]);
      numbers_[i] = 0;
    }
  }

  std::vector<float> numbers_;
  std::vector<float> all_;  // by take_all()
  std::optional<ChoicesKey> table_key_;
  std::vector<UnitChoice> table_;
  std::size_t steps_ = 0;
  std::vector<float> before_;
  std::vector<std::uint32_t> indices_;
  std::vector<float> values_;
};

class PretendedArrays final : public DeviceArrays {
 public:
  void write(const SparseVector& entries, float factor, const WritableNumbers& to) override {
    WritableNumbers array = to;
    array.data = other_side(to.data);
    std::memset(array.data, 0, array.size_bytes());
    with_numbers(array, [&](auto* numbers, auto rounded) {
      for (std::size_t i = 0; i < entries.size(); ++i) numbers[entries.index(i)] = rounded(factor * entries.values[i]);
    });
  }
  void subtract(const SparseVector& entries, float factor, const WritableNumbers& from) override {
    WritableNumbers array = from;
    array.data = other_side(from.data);
    with_numbers(array, [&](auto* numbers, auto rounded) {
      for (std::size_t i = 0; i < entries.size(); ++i) {
        auto& number = numbers[entries.index(i)];
        number = rounded(widened(from.type, number) - factor * entries.values[i]);
      }
    });
  }
  void read(const Gradient& from, void* to) override {
    std::memcpy(to, other_side(from.data), from.size * (from.type == NumberType::f32 ? 4 : 2));
  }
};

class PretendedSum final : public DeviceSum {
 public:
  explicit PretendedSum(std::size_t size) : given_(size), sum_(size) {}

  const float* give(const Gradient& numbers, float weight) override {
    const kernels::ScaledGradient from = here(kernels::ScaledGradient(numbers));
    for (std::size_t i = 0; i < given_.size(); ++i) given_[i] = weight * kernels::number_at(from, i);
    return other_side(given_.data());
  }
  std::optional<std::size_t> add(std::span<const float* const> given) override {
    std::optional<std::size_t> bad;
    for (std::size_t i = sum_.size(); i-- > 0;) {
      sum_[i] = other_side(given[0])[i];
      for (std::size_t r = 1; r < given.size(); ++r) sum_[i] += other_side(given[r])[i];
      if (!std::isfinite(sum_[i])) bad = i;
    }
    return bad;
  }
  std::uint32_t extend_checksum(std::uint32_t checksum) override {
    return crc32c_extend_by_table(checksum, std::as_bytes(std::span(sum_)));
  }
  void read(std::span<float> to) override {
    fail_if_asked_to();
    std::copy(sum_.begin(), sum_.end(), to.begin());
  }
  void write(float factor, const WritableNumbers& to) override { arrays_.write(all(), factor, to); }
  void subtract(float factor, const WritableNumbers& from) override { arrays_.subtract(all(), factor, from); }

 private:
  SparseVector all() const {
    SparseVector entries;
    entries.dim = sum_.size();
    entries.values = sum_;
    return entries;
  }

  std::vector<float> given_;
  std::vector<float> sum_;
  PretendedArrays arrays_;
};

}  // namespace

// These replace those of the library.
std::unique_ptr<DeviceMemory> make_device_memory(Device device, std::size_t size) {
  if (device != device_test::kDevice) throw UsageError("no such device");
  return std::make_unique<PretendedMemory>(size);
}
std::unique_ptr<DeviceArrays> make_device_arrays(Device) { return std::make_unique<PretendedArrays>(); }
std::unique_ptr<DeviceSum> make_device_sum(Device /*device*/, std::size_t size) {
  return std::make_unique<PretendedSum>(size);
}

namespace device_test {

std::size_t tables_made() { return made_tables; }
void fail_next_call() { fails_next = true; }

std::string why_none() { return {}; }
bool is_fast() { return false; }
void* stream() { return nullptr; }

Copy::Copy(const void* bytes, std::size_t size)
    : data_(other_side(static_cast<void*>(new std::byte[size + 1]))), size_(size) {
  if (size > 0) std::memcpy(other_side(data_), bytes, size);
}
Copy::~Copy() { delete[] static_cast<std::byte*>(other_side(data_)); }
void Copy::read(void* bytes) const {
  if (size_ > 0) std::memcpy(bytes, other_side(data_), size_);
}

}  // namespace device_test
}  // namespace sparsewire
