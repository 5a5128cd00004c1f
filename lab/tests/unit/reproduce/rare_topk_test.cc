// Top-k in every n-th round: nothing in between, then the largest of what has accumulated.
#include "reproduce/rare_topk.h"

#include <gtest/gtest.h>

#include "sparsewire/errors.h"
#include "sparsewire/sifter.h"

namespace sparsewire::rare_topk_test {
namespace {

TEST(RareTopK, SendsTheLargestOfAllRoundsInEveryThird) {
  const Registration registered = reproduce::register_rare_topk();
  Sifter sifter("rare_topk:k=2,every=3", "ef", {.layout = 4});
  const std::vector<float> gradient = {1, -3, 2, -2};
  for (int round = 1; round <= 6; ++round) {
    SparseVector sent;
    sifter.sift(gradient, sent);
    if (round % 3 != 0) {
      EXPECT_EQ(sent.size(), 0U) << round;
      continue;
    }
    // The tie between 2 and -2 goes to the lower index in the third round; in the sixth, entry 3 has waited longer.
    EXPECT_EQ(sent.indices, (round == 3 ? std::vector<std::uint32_t>{1, 2} : std::vector<std::uint32_t>{1, 3}));
    EXPECT_EQ(sent.values, (round == 3 ? std::vector<float>{-9, 6} : std::vector<float>{-9, -12}));
  }
}

TEST(RareTopK, IsThereOnlyWhileItIsRegistered) {
  { const Registration registered = reproduce::register_rare_topk(); }
  EXPECT_THROW(Sifter("rare_topk:k=1,every=2", "ef", {.layout = 4}), UsageError);
}

}  // namespace
}  // namespace sparsewire::rare_topk_test
