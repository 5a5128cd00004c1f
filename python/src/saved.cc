// What a Worker will say about a saved state, before there is one: making Workers needs all ranks, looking does not.
#include <fmt/core.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>
#include <utility>
#include <vector>

#include "bind.h"
#include "context.h"
#include "numbers.h"
#include "sparsewire/errors.h"
#include "sparsewire/sifter.h"
#include "sparsewire/state.h"

namespace sparsewire::python {
namespace {

namespace py = pybind11;

std::string text(const py::kwargs& options, const char* name) {
  const py::object value = options[name];
  return value.is_none() ? std::string() : value.cast<std::string>();
}

// The state of one Worker, from Worker.save(). The fields are those of docs/reference/exchange.md, "Save and load".
// Throws UsageError if a Worker with this layout and these options will not load it. `is_own`: the rank loads this
// state only.
void check_saved_worker(const py::object& bytes, const py::object& layout, std::uint32_t rank, std::uint32_t ranks,
                        bool is_own, const py::kwargs& options) {
  const Bytes held(bytes);
  State state(held.span());
  std::uint32_t saved_rank = 0;
  std::uint32_t saved_ranks = 0;
  state.value("worker_rank", saved_rank);
  state.value("worker_ranks", saved_ranks);
  if (saved_rank != rank || saved_ranks != ranks) {
    throw UsageError(fmt::format("rank {} of {} saved it, not rank {} of {}", saved_rank, saved_ranks, rank, ranks));
  }
  Layout tensors = to_layout(layout);
  if (serialize_layout(state, {}) != tensors) throw UsageError("its tensors are not those of its groups");
  for (const char* const name : {"exchange", "downlink"}) {
    std::string saved;
    state.string(name, saved);
    if (saved == text(options, name) || !is_own) continue;
    throw UsageError(
        fmt::format("it was saved with {}='{}', and here it is '{}': register with the first, or save "
                    "consolidated_state_dict()",
                    name, saved, text(options, name)));
  }
  std::vector<std::byte> part;
  state.array("server", part);
  if (!part.empty()) State server(part);
  state.array("sifter", part);
  SifterContext context{.layout = std::move(tensors),
                        .scope = to_scope(text(options, "scope")),
                        .rank = static_cast<int>(rank),
                        .ranks = static_cast<int>(ranks),
                        .seed = options["seed"].cast<std::uint64_t>()};
  const std::string sparsifier = text(options, "sparsifier");
  const std::string feedback = text(options, "feedback");
  const py::gil_scoped_release unlocked;
  Sifter(sparsifier, feedback, std::move(context)).load(part);
}

}  // namespace

void bind_saved(py::module_& module) {
  module.def("_check_saved_worker", &check_saved_worker, py::arg("state"), py::arg("layout"), py::arg("rank"),
             py::arg("ranks"), py::arg("is_own"));
}

}  // namespace sparsewire::python
