// A model of three named tensors whose gradients are in bf16, as mixed-precision training has them. The ratio counts
// for each tensor by itself, so that a tensor with small gradients is not left out.
//
//   ./named_layers_bf16
#include <sparsewire/layout.h>
#include <sparsewire/worker.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

namespace {

// bf16 is the upper half of a 32-bit float. A trainer has such numbers already; here they are cut off, not rounded.
std::uint16_t to_bf16(float number) { return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(number) >> 16); }

// Some numbers that differ between ranks. The gradients of the embedding are a thousand times smaller than the others.
float made_up_gradient(const sparsewire::TensorRange& tensor, std::uint64_t i, int rank) {
  const float scale = tensor.name == "embedding" ? 0.001F : 1.0F;
  return scale * std::sin(static_cast<float>(i) + 10.0F * static_cast<float>(rank));
}

}  // namespace

int main() {
  // The tensors in the order in which they lie in the flat gradient. Layout sets where each begins.
  const sparsewire::Layout layout({{"embedding", 10000}, {"hidden", 400}, {"bias", 10}});

  std::map<std::string, int> entries_of;  // entries of the update, by tensor
  sparsewire::run_on_threads(2, [&](sparsewire::Transport& transport) {
    // The gradient as bit patterns, one std::uint16_t for each entry.
    std::vector<std::uint16_t> gradient(layout.dim());
    for (const sparsewire::TensorRange& tensor : layout.tensors()) {
      for (std::uint64_t i = 0; i < tensor.size; ++i) {
        gradient[tensor.begin + i] = to_bf16(made_up_gradient(tensor, i, transport.rank()));
      }
    }

    sparsewire::Worker worker({.sparsifier = "topk:ratio=0.01,dense_below=100",  // the bias is small: send all of it
                               .exchange = "allgather",
                               .codec = "auto:values=bf16",  // values travel as bf16 too
                               .scope = sparsewire::Scope::layer},
                              layout, transport);

    worker.step({gradient.data(), sparsewire::NumberType::bf16, gradient.size()});

    if (transport.rank() != 0) return;
    // The update is a list of entries, in 32-bit floats whatever the gradient is: layout.at() tells which tensor an
    // entry belongs to.
    const sparsewire::SparseVector& entries = worker.update();
    for (std::size_t i = 0; i < entries.size(); ++i) ++entries_of[layout.at(entries.index(i)).name];
  });

  // Each of the two workers sent 1 % of each large tensor: 100 entries of the embedding, and 4 of the hidden layer. An
  // entry that both chose is counted once, so there are at most twice as many.
  for (const auto& [name, entries] : entries_of) std::printf("%s: %d entries\n", name.c_str(), entries);
  const bool is_right = entries_of["embedding"] >= 100 && entries_of["embedding"] <= 200 && entries_of["hidden"] >= 4 &&
                        entries_of["hidden"] <= 8 && entries_of["bias"] == 10;
  return is_right ? 0 : 1;
}
