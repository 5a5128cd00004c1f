// Some of Shakespeare's plays, as Karpathy put them together in 2015.
#include "data/data_sets.h"

namespace sparsewire::train {
namespace {

constexpr DataFileInfo kTinyShakespeareFiles[] = {
    {"input.txt", "6fb458f1232090904fb40fe944165e91", ""},
};

TextData read_input(const std::string& folder) { return read_text(folder + "/input.txt"); }

}  // namespace

DataSetInfo tinyshakespeare_data_set() noexcept {
  return {
      .name = "tinyshakespeare",
      .summary = "some of Shakespeare's plays: 1,115,394 characters, 65 different ones",
      .source = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
      .files = kTinyShakespeareFiles,
      .text = read_input,
  };
}

}  // namespace sparsewire::train
