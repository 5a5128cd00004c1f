// With chunks a model has so many units that going through them takes the host longer than a launch. So in the steady
// state it asks neither the method about each of them, nor makes tables for the device.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "pretended_device/pretended_device.h"
#include "sparsewire/errors.h"
#include "sparsewire/sifter.h"
#include "sparsify/unit_sparsifier.h"
#include "unit/device/arrays.h"

namespace sparsewire::host_work_test {
namespace {

using device_test::Copy;
using device_test::kDevice;
using device_test::tables_made;

constexpr std::size_t kSize = 20'003;

// Normal numbers on the device.
class Numbers {
 public:
  explicit Numbers(std::uint64_t seed, bool is_bad = false) : copy_(make(seed, is_bad).data(), kSize * sizeof(float)) {}

  Gradient gradient() const {
    Gradient all(copy_.data(), NumberType::f32, kSize);
    all.device = kDevice;
    return all;
  }

 private:
  static std::vector<float> make(std::uint64_t seed, bool is_bad) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> draw;
    std::vector<float> all(kSize);
    for (float& one : all) one = draw(random);
    if (is_bad) all[7] = std::numeric_limits<float>::infinity();
    return all;
  }

  Copy copy_;
};

// How many tables were made during the call.
template <class Call>
std::size_t tables_of(Call call) {
  const std::size_t before = tables_made();
  call();
  return tables_made() - before;
}

TEST(HostWork, MakesOneTableForChunks) {
  for (const char* feedback : {"ef:decay=0.95", "ef:scale=lr", "none", "momentum:m=0.9,clip=1"}) {
    Sifter sifter("topk:k=4,chunk=64", feedback, {.layout = Layout(kSize)});
    SparseVector sent;
    for (std::uint64_t t = 0; t < 10; ++t) {
      const Numbers numbers(t);
      const std::size_t made = tables_of([&] { sifter.sift(numbers.gradient(), sent, 0.1F * static_cast<float>(t)); });
      EXPECT_EQ(made, t == 0 ? 1U : 0U) << feedback << ", step " << t;
      if (t % 3 == 1) sifter.undo(numbers.gradient(), sent, 0.1F * static_cast<float>(t));
      const Numbers bad(t, /*is_bad=*/true);
      EXPECT_EQ(tables_of([&] { EXPECT_THROW(sifter.sift(bad.gradient(), sent), BadGradient); }), 0U);
      if (t == 5) sifter.load(sifter.save());
    }
  }
}

TEST(HostWork, MakesATableWhereTheEntriesOfAUnitChange) {
  Sifter sifter("topk:ratio=0.1,chunk=20,warmup_from=0.4,warmup_steps=8", "ef", {.layout = Layout(kSize)});
  SparseVector sent;
  std::size_t made = 0;
  std::size_t changes = 0;
  std::size_t before = 0;
  for (std::uint64_t t = 0; t < 15; ++t) {
    made += tables_of([&] { sifter.sift(Numbers(t).gradient(), sent); });
    if (sent.size() != before) ++changes;
    before = sent.size();
  }
  EXPECT_EQ(made, changes);
  EXPECT_GT(changes, 4U);
  EXPECT_LT(changes, 9U);  // of 20 entries k is the same in some steps of the warm-up
}

// Takes the largest of each unit, and counts how often it is asked.
class Counted final : public UnitSparsifier {
 public:
  Counted(Spec& spec, const SifterContext& context) : UnitSparsifier(spec, context, Scope::model, 64) {}

  mutable std::size_t asked = 0;
  double depends_on = 1;
  std::uint64_t k = 4;
  std::size_t count() const { return units().size(); }

 private:
  Rule rule(const Unit& /*unit*/) const override {
    ++asked;
    return {Rule::Kind::best, k};
  }
  std::optional<double> rule_depends_on() const override { return depends_on; }
  double expected_in(const Unit& /*unit*/) const override { return 4; }
};

TEST(HostWork, AsksTheMethodOnlyWhereItsAnswersMayHaveChanged) {
  Spec spec("counted");
  Counted counted(spec, {.layout = Layout(kSize)});
  ErrorMemory memory(kSize, nullptr, kDevice);
  SparseVector sent;
  const Numbers numbers(1);
  const kernels::ScaledGradient gradient(numbers.gradient());
  for (int t = 0; t < 6; ++t) counted.sift(&gradient, 1, memory, sent);
  EXPECT_EQ(counted.asked, counted.count());
  counted.depends_on = 2;
  EXPECT_EQ(tables_of([&] { counted.sift(&gradient, 1, memory, sent); }), 0U);  // the same answers
  EXPECT_EQ(counted.asked, 2 * counted.count());
  counted.k = 3;
  counted.depends_on = 3;
  EXPECT_EQ(tables_of([&] { counted.sift(&gradient, 1, memory, sent); }), 1U);
  EXPECT_EQ(sent.size(), 3 * counted.count());
}

}  // namespace
}  // namespace sparsewire::host_work_test
