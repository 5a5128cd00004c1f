// States that version 0.1.0 saved are loaded, and sifters continue with the same bits as 0.1.0 did.
#include "unit/old_states.h"

#include <gtest/gtest.h>

#include "sparsewire/sifter.h"
#include "unit/bits.h"

namespace sparsewire::old_states_test {
namespace {

struct Saved {
  explicit Saved(const std::string& path)
      : file(path),
        sparsifier(file.text()),
        feedback(file.text()),
        scope(file.text() == "layer" ? Scope::layer : Scope::model),
        steps_before(std::stoi(file.text())),
        state(old_state::read_state(file)) {}

  Sifter make_sifter() const {
    return Sifter(sparsifier, feedback,
                  {.layout = old_state::layout(), .scope = scope, .rank = 1, .ranks = 3, .seed = 4});
  }

  old_state::Reader file;  // what follows the state is not read yet
  std::string sparsifier;
  std::string feedback;
  Scope scope;
  int steps_before;
  std::vector<std::byte> state;
};

// Since 0.4 a threshold follows the learning rate where the memory holds it. 0.1.0 held it in units of the memory.
bool follows_lr(const Saved& saved) {
  return saved.sparsifier.starts_with("threshold") && saved.feedback.find("scale=lr") != std::string::npos;
}

// Takes the steps that 0.1.0 took after it had saved, and compares.
void expect_continues(Sifter& sifter, Saved& saved) {
  for (int i = 0; i < old_state::kStepsAfter; ++i) {
    const int step = saved.steps_before + i;
    SCOPED_TRACE("step " + std::to_string(step));
    SparseVector sent;
    const float lr = old_state::lr_of(step);
    const bool has_changed = lr != old_state::lr_of(saved.steps_before);
    sifter.sift(Gradient(old_state::gradient_of(step, 1)), sent, lr);
    if (follows_lr(saved) && has_changed) {
      EXPECT_GT(sent.size(), old_state::read_entries(saved.file).size()) << "the threshold has fallen with lr";
      return;
    }
    ASSERT_TRUE(same_bits(old_state::read_entries(saved.file), sent));
    sifter.observe(sent, old_state::made_up_update(sent.values));
  }
  EXPECT_TRUE(same_bits(saved.file.array<float>(), sifter.memory()));
  EXPECT_TRUE(same_bits(saved.file.array<float>(), sifter.velocity()));
  EXPECT_TRUE(saved.file.is_at_end());
}

TEST(OldSifterStates, ContinueWithTheSameBits) {
  const std::vector<std::string> paths = old_state::files_of("sifter_");
  ASSERT_EQ(paths.size(), 24U);
  for (const std::string& path : paths) {
    SCOPED_TRACE(path);
    Saved saved(path);
    Sifter sifter = saved.make_sifter();
    sifter.load(saved.state);
    EXPECT_EQ(sifter.step(), static_cast<std::uint64_t>(saved.steps_before));
    EXPECT_EQ(sifter.stats().step, static_cast<std::uint64_t>(saved.steps_before));
    expect_continues(sifter, saved);
  }
}

TEST(OldSifterStates, ContinueWithTheSameBitsAfterTheyWereSavedInThePresentVersion) {
  for (const std::string& path : old_state::files_of("sifter_")) {
    SCOPED_TRACE(path);
    Saved saved(path);
    Sifter first = saved.make_sifter();
    first.load(saved.state);
    Sifter second = saved.make_sifter();
    second.load(first.save());
    expect_continues(second, saved);
  }
}

TEST(OldSifterStates, ContinueWithTheSameBitsInAnotherSifter) {
  for (const std::string& path : old_state::files_of("sifter_threshold")) {
    SCOPED_TRACE(path);
    Saved saved(path);
    if (saved.sparsifier.starts_with("threshold:lambda")) continue;  // that of the spec counts
    Sifter first = saved.make_sifter();
    first.load(saved.state);
    Sifter second = saved.make_sifter();
    second.continue_from(first);
    expect_continues(second, saved);
  }
}

// The step that gives an old threshold the units of the gradient can be taken back, and so can the next one.
TEST(OldSifterStates, TakeBackTheStepThatConvertsTheirThreshold) {
  for (const std::string& path : old_state::files_of("sifter_threshold")) {
    SCOPED_TRACE(path);
    Saved saved(path);
    if (saved.feedback.starts_with("momentum")) continue;
    Sifter sifter = saved.make_sifter();
    sifter.load(saved.state);
    const std::vector<float> zeros(sifter.layout().dim());
    sifter.write_memory(zeros);  // so that undo() is exact
    std::vector<std::byte> before = sifter.save();
    const std::vector<float> gradient = old_state::gradient_of(0, 1);
    SparseVector sent;
    for (const float lr : {0.25F, 0.5F}) {
      sifter.sift(gradient, sent, lr);
      sifter.undo(gradient, sent, lr);
      sifter.write_memory(zeros);
      EXPECT_EQ(before, sifter.save());
      sifter.sift(gradient, sent, 0.25F);
      sifter.write_memory(zeros);
      before = sifter.save();
    }
  }
}

}  // namespace
}  // namespace sparsewire::old_states_test
