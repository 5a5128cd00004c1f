#include "kernels/levels.h"

#include "kernels/targets.h"  // must come before foreach_target.h
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/levels.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace sparsewire::kernels {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr std::size_t kLanes = 16;
using Floats = hn::CappedTag<float, kLanes>;
constexpr Floats kFloats;
constexpr std::size_t kWidth = hn::MaxLanes(kFloats);
using Float = hn::Vec<Floats>;

// Sixteen partial sums.
class Sum {
 public:
  Sum() {
    for (Float& part : parts_) part = hn::Zero(kFloats);
  }
  HWY_INLINE void add(std::size_t part, Float number) { parts_[part] = hn::Add(parts_[part], number); }
  double total() const {
    alignas(64) float lanes[kLanes];
    for (std::size_t part = 0; part < kLanes / kWidth; ++part) hn::Store(parts_[part], kFloats, lanes + part * kWidth);
    double sum = 0;
    for (const float lane : lanes) sum += static_cast<double>(lane);
    return sum;
  }

 private:
  Float parts_[kLanes / kWidth];
};

// Calls work(part, values) for every SIMD vector; the last group of sixteen is padded with zeros, which do not change
// the sums.
template <class Work>
HWY_INLINE void for_each_vector(const float* values, std::size_t count, Work&& work) {
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::size_t part = 0; part < kLanes / kWidth; ++part) {
      work(part, hn::LoadU(kFloats, values + i + part * kWidth));
    }
  }
  if (i == count) return;
  alignas(64) float last[kLanes] = {};
  for (std::size_t j = 0; i < count; ++i, ++j) last[j] = values[i];
  for (std::size_t part = 0; part < kLanes / kWidth; ++part) work(part, hn::Load(kFloats, last + part * kWidth));
}

Halves halves_of(const float* values, std::size_t count, float factor, float cut) {
  const Float factors = hn::Set(kFloats, factor);
  const Float cuts = hn::Set(kFloats, cut);
  const Float one = hn::Set(kFloats, 1.0F);
  Sum all;
  Sum high;
  Sum high_count;
  for_each_vector(values, count, [&](std::size_t part, Float value) {
    const Float magnitude = hn::Mul(hn::Abs(value), factors);
    const auto is_high = hn::Gt(magnitude, cuts);
    all.add(part, magnitude);
    high.add(part, hn::IfThenElseZero(is_high, magnitude));
    high_count.add(part, hn::IfThenElseZero(is_high, one));
  });
  Halves halves;
  halves.high_sum = high.total();
  halves.high_count = high_count.total();
  halves.low_sum = all.total() - halves.high_sum;
  halves.low_count = static_cast<double>(count) - halves.high_count;
  return halves;
}

double rounding_loss(const float* values, std::size_t count, float scale, float most) {
  const Float scales = hn::Set(kFloats, scale);
  const Float top = hn::Set(kFloats, most);
  Sum loss;
  for_each_vector(values, count, [&](std::size_t part, Float value) {
    const Float quotient = hn::Div(value, scales);
    const Float code = hn::Round(hn::Min(hn::Max(quotient, hn::Neg(top)), top));
    const Float error = hn::Sub(quotient, code);  // in units of the scale, so that no square overflows
    loss.add(part, hn::Mul(error, error));
  });
  const auto wide = static_cast<double>(scale);
  return loss.total() * wide * wide;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace sparsewire::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sparsewire::kernels {
namespace {
HWY_EXPORT(halves_of);
HWY_EXPORT(rounding_loss);
}  // namespace

Halves halves_of(const float* values, std::size_t count, float factor, float cut) noexcept {
  return HWY_DYNAMIC_DISPATCH(halves_of)(values, count, factor, cut);
}

double rounding_loss(const float* values, std::size_t count, float scale, float most) noexcept {
  return HWY_DYNAMIC_DISPATCH(rounding_loss)(values, count, scale, most);
}

}  // namespace sparsewire::kernels
#endif  // HWY_ONCE
