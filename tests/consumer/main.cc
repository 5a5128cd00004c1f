// Sifts two gradients and checks that nothing got lost: what was sent and what waits is what came in.
#include <sparsewire/sifter.h>

#include <array>
#include <cstddef>
#include <cstdio>

int main() {
  // Multiples of 1/4, so that sums are exact in any order.
  const std::array<float, 8> first = {0.25F, -3.0F, 0.5F, 0.0F, 2.0F, -0.75F, 0.5F, 1.0F};
  const std::array<float, 8> second = {0.25F, 0.5F, 4.0F, 0.25F, 0.0F, -0.75F, -0.5F, 0.5F};

  sparsewire::Sifter sifter("topk:k=2", "ef", {.layout = first.size()});
  std::array<float, 8> arrived{};
  sparsewire::SparseVector sent;
  for (const auto& gradient : {first, second}) {
    sifter.sift(sparsewire::Gradient(gradient), sent);
    for (std::size_t i = 0; i < sent.size(); ++i) {
      std::printf("sent %u: %g\n", sent.index(i), static_cast<double>(sent.values[i]));
      arrived[sent.index(i)] += sent.values[i];
    }
  }

  const std::vector<float> memory = sifter.memory();
  for (std::size_t i = 0; i < first.size(); ++i) {
    if (arrived[i] + memory[i] != first[i] + second[i]) {
      std::printf("entry %zu got lost\n", i);
      return 1;
    }
  }
  std::printf("nothing lost\n");
  return 0;
}
