// Fuzzes the specs of sparsifiers, feedbacks and codecs. Any string gives a UsageError with a message, or an object
// that works.
#include <string_view>
#include <vector>

#include "require.h"
#include "sparsewire/codec.h"
#include "sparsewire/errors.h"
#include "sparsewire/sifter.h"

namespace sparsewire {
namespace {

constexpr std::size_t kDim = 40;

template <class Use>
void check(const Use& use) {
  try {
    use();
  } catch (const UsageError& error) {
    require(error.what()[0] != 0, "an error has a message");
  }
}

void use_sparsifier(std::string_view spec, Scope scope) {
  const Layout layout({{"a", 5, 0}, {"b", kDim - 5, 0}});
  Sifter sifter(spec, "ef", {.layout = layout, .scope = scope, .ranks = 2});
  std::vector<float> gradient(kDim);
  for (std::size_t i = 0; i < kDim; ++i) gradient[i] = static_cast<float>(i * 7 % 11) - 5;
  SparseVector out;
  for (int step = 0; step < 2; ++step) {
    sifter.sift(gradient, out);
    require(out.is_valid() && out.dim == kDim, "what is sent is valid");
  }
}

void use_codec(std::string_view spec) {
  Codec codec(spec);
  SparseVector vector;
  vector.dim = kDim;
  vector.indices = {0, 3, 4, 5, 39};
  vector.values = {1, -2, 0.5F, 3, 0};
  std::vector<std::byte> frame;
  codec.encode(vector, frame, nullptr);
  SparseVector decoded;
  require(decode(frame, decoded) == DecodeStatus::ok, "what was encoded can be decoded");
  require(decoded.indices == vector.indices, "indices are not changed");
}

void use_feedback(std::string_view spec) {
  const Feedback feedback = parse_feedback(spec);
  require(feedback.decay >= 0 && feedback.decay <= 1, "a decay is in [0, 1]");
  Sifter sifter("topk:ratio=0.1", spec, {.layout = kDim});
  const std::vector<float> gradient(kDim, 1.0F);
  SparseVector sent;
  sifter.sift(Gradient(gradient), sent);
}

}  // namespace
}  // namespace sparsewire

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sparsewire;
  const std::string_view spec(reinterpret_cast<const char*>(data), size);
  check([&] { use_sparsifier(spec, Scope::model); });
  check([&] { use_sparsifier(spec, Scope::layer); });
  check([&] { use_codec(spec); });
  check([&] { use_feedback(spec); });
  return 0;
}
