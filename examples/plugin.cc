// A sparsifier of your own in the program `sparsewire`: every n-th entry, beginning one further on in each step.
//
//   c++ -std=c++20 -O2 -shared -fPIC plugin.cc -o libevery.so $(pkg-config --cflags --libs sparsewire)
//   sparsewire compare --load ./libevery.so --methods dense topk every:n=100
#include <sparsewire/plugin.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace {

class Every final : public sparsewire::Sparsifier {
 public:
  explicit Every(std::uint64_t n) : n_(n) {}

  void choose(std::span<const float> accumulated, std::uint64_t step, std::vector<std::uint32_t>& chosen) override {
    for (std::size_t i = step % n_; i < accumulated.size(); i += n_) {
      if (accumulated[i] != 0) chosen.push_back(static_cast<std::uint32_t>(i));
    }
  }

 private:
  std::uint64_t n_;
};

}  // namespace

SPARSEWIRE_PLUGIN(registrar) {
  registrar.add({"every", "every n-th entry, in turn", "every:n=100"},
                [](sparsewire::Spec& spec, const sparsewire::SifterContext& /*context*/) {
                  return std::make_unique<Every>(spec.integer("n", 1, 1000000).value_or(100));
                });
}
