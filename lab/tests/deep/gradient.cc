// One pass of a deep network, for gradients_test.py, which compares it with PyTorch's.
//
//   deep_gradient MODEL ALPHABET LENGTH WIDTH LAYERS HEADS
//
// Reads weights.npy, inputs.npy and targets.npy; writes gradient.npy and state.npy; prints the loss, then a line for
// each tensor with its size and name. Fails if the same pass has other bits elsewhere in memory or beside others, or if
// the library changes how this thread or a new one computes.
#include <fmt/core.h>

#include <algorithm>
#include <cfenv>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "files/npy.h"
#include "files/replace.h"
#include "networks/model.h"
#include "sparsewire/support/pages.h"

namespace sparsewire::train {
namespace {

struct PassResult {
  double loss = 0;
  std::vector<float> gradient;
  std::vector<float> state;

  friend bool operator==(const PassResult&, const PassResult&) = default;
};

struct Given {
  std::vector<float> weights = read("weights.npy");
  std::vector<float> inputs = read("inputs.npy");
  std::vector<float> targets = read("targets.npy");

  static std::vector<float> read(const char* name) {
    const files::Array array = files::read_npy(name);
    return {array.floats().begin(), array.floats().end()};
  }
};

// `offset`: by how many numbers the weights and the gradient are off a cache line.
PassResult run_pass(Model& model, const Given& given, bool is_text, std::size_t samples, std::size_t offset) {
  const std::vector<std::int64_t> symbols(given.inputs.begin(), given.inputs.end());
  const std::vector<std::int64_t> targets(given.targets.begin(), given.targets.end());
  ModelBatch batch{.size = samples, .targets = targets, .seed = 5, .worker = 2, .step = 7};
  is_text ? void(batch.symbols = symbols) : void(batch.pixels = given.inputs);
  LongVector weights(offset);
  weights.insert(weights.end(), given.weights.begin(), given.weights.end());
  LongVector gradient(weights.size());
  PassResult result;
  result.state.resize(model.state_size());
  model.initial_state(result.state);
  result.loss =
      model.gradient(batch, std::span(weights).subspan(offset), result.state, std::span(gradient).subspan(offset));
  result.gradient.assign(gradient.begin() + static_cast<std::ptrdiff_t>(offset), gradient.end());
  return result;
}

// Rounds to nearest, and keeps denormal numbers.
void check_float_mode(const char* when) {
  volatile float small = std::numeric_limits<float>::min();
  small = small / 2;
  if (std::fegetround() != FE_TONEAREST || small == 0) {
    throw std::runtime_error(fmt::format("the floating-point mode is another one {}", when));
  }
}

void write(const char* name, const std::vector<float>& numbers) {
  files::Replacement file(name);
  files::write_npy(file, numbers, std::vector<std::uint64_t>{numbers.size()});
  file.commit();
}

void run(int count, char** arguments) {
  if (count != 7) throw std::runtime_error("deep_gradient MODEL ALPHABET LENGTH WIDTH LAYERS HEADS");
  const auto number = [&](int i) { return std::strtoull(arguments[i], nullptr, 10); };
  const ModelSizes sizes{number(2), number(3), number(4), number(5), number(6)};
  const auto model = make_model(arguments[1], sizes, "cpu");
  check_float_mode("after loading");

  const Given given;
  const bool is_text = sizes.alphabet != 0;
  const std::size_t samples = given.targets.size() / (is_text ? sizes.length : 1);
  const PassResult result = run_pass(*model, given, is_text, samples, 0);
  check_float_mode("after a pass");
  std::vector<PassResult> others(2);
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < others.size(); ++i) {
      threads.emplace_back([&, i] { others[i] = run_pass(*model, given, is_text, samples, i + 1); });
    }
    threads.emplace_back([] { check_float_mode("on a new thread"); });
  }
  for (const PassResult& other : others) {
    if (!(other == result)) throw std::runtime_error("the same pass has other bits elsewhere, or beside others");
  }
  write("gradient.npy", result.gradient);
  write("state.npy", result.state);
  fmt::print("{}\n", result.loss);
  for (const ModelTensor& tensor : model->tensors()) fmt::print("{} {}\n", tensor.size, tensor.name);
}

}  // namespace
}  // namespace sparsewire::train

int main(int count, char** arguments) {
  try {
    sparsewire::train::run(count, arguments);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "deep_gradient: {}\n", error.what());
    return 1;
  }
}
