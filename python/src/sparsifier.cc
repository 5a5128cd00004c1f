// Sparsifiers written in Python: an object of Python, called by the library like any other sparsifier.
//
// The library calls with the GIL released and from any thread; each call here takes it. What Python throws travels
// through the library as a PythonError.
#include "sparsewire/sparsifier.h"

#include <fmt/core.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "bind.h"
#include "context.h"
#include "errors.h"
#include "numbers.h"
#include "sparsewire/errors.h"

namespace sparsewire::python {
namespace {

class PythonSparsifier final : public Sparsifier {
 public:
  // REQUIRES: the GIL is held.
  PythonSparsifier(std::string name, py::object object) : name_(std::move(name)), object_(hold(std::move(object))) {
    const py::tuple traits = self().attr("_traits")();
    traits_ = {.observes = traits[0].cast<bool>(),
               .entries_vary = traits[1].cast<bool>(),
               .remembers = traits[2].cast<bool>()};
    rewinds_by_state_ = traits[3].cast<bool>();
  }

  SparsifierTraits traits() const override { return traits_; }

  double expected_entries() const override {
    return call_python([&] {
      const double entries = self().attr("expected_entries")().cast<double>();
      if (!(entries >= 0)) throw UsageError(fmt::format("[{}] expects {} entries", name_, entries));
      return entries;
    });
  }

  void choose(std::span<const float> accumulated, std::uint64_t step, std::vector<std::uint32_t>& chosen) override {
    call_python([&] {
      if (rewinds_by_state_) before_ = self().attr("_save_bytes")().cast<std::string>();
      self().attr("step") = step;
      copy(accumulated);
      try {
        chosen = to_indices(self().attr("choose")(py::handle(accumulated_.get())), name_);
      } catch (...) {
        rewind();  // the library does it only for a choice that was made
        throw;
      }
    });
  }

  void observe(const SparseVector& sent, std::span<const float> update_at_sent) override {
    call_python([&] {
      std::vector<std::uint32_t> indices(sent.size());
      for (std::size_t i = 0; i < indices.size(); ++i) indices[i] = sent.index(i);
      self().attr("observe")(to_array(std::move(indices)), to_array(std::vector<float>(sent.values)),
                             to_array(std::vector<float>(update_at_sent.begin(), update_at_sent.end())));
    });
  }

  void rewind() override {
    call_python([&] {
      if (rewinds_by_state_) {
        self().attr("_load_bytes")(py::bytes(before_));
      } else {
        self().attr("rewind")();
      }
    });
  }

  void serialize(State& state) override {
    if (!traits_.remembers) return;
    std::string bytes;
    if (state.saving()) bytes = call_python([&] { return self().attr("_save_bytes")().cast<std::string>(); });
    state.string("python", bytes);
    if (state.saving()) return;
    call_python([&] {
      self().attr("remap_index") = state.remap_index ? py::cpp_function(state.remap_index) : py::object(py::none());
      const struct Forget {
        py::handle object;
        ~Forget() { object.attr("remap_index") = py::none(); }
      } forget{self()};
      self().attr("_load_bytes")(py::bytes(bytes));
    });
  }

 private:
  py::handle self() const { return object_.get(); }

  // Python gets a copy, which whoever keeps it, such as a traceback, may read for as long as he likes: the memory
  // changes in this step, and ends with the Sifter. The array of the last step is used again if nobody has kept it.
  void copy(std::span<const float> accumulated) {
    PyObject* const last = accumulated_.get();
    if (last != nullptr && Py_REFCNT(last) == 1) {
      const auto array = py::reinterpret_borrow<py::array_t<float>>(last);
      if (static_cast<std::size_t>(array.size()) == accumulated.size()) {
        std::copy(accumulated.begin(), accumulated.end(), const_cast<float*>(array.data()));
        return;
      }
    }
    py::array_t<float> array = to_array(std::vector<float>(accumulated.begin(), accumulated.end()));
    array.attr("flags").attr("writeable") = false;
    accumulated_ = hold(std::move(array));
  }

  std::string name_;
  std::shared_ptr<PyObject> object_;
  std::shared_ptr<PyObject> accumulated_;  // the array that choose() gets
  SparsifierTraits traits_;
  bool rewinds_by_state_ = false;  // the class has a state and no rewind(): its state is saved before each choice
  std::string before_;
};

py::object context_of(const SifterContext& context) {
  return py::module_::import("sparsewire._sparsifier")
      .attr("Context")(from_layout(context.layout), context.layout.dim(), to_word(context.scope), context.rank,
                       context.ranks, context.weight, context.seed, context.first_step, to_word(context.role),
                       context.model_dim);
}

// The keys of the spec that were given, as keyword arguments. `keys`: name and type, one of float, int, bool, str.
py::dict read_keys(Spec& spec, const std::vector<std::pair<std::string, std::string>>& keys) {
  py::dict given;
  for (const auto& [key, type] : keys) {
    if (!spec.has(key)) {
      spec.word(key);  // a valid key, for the message about unknown ones
    } else if (type == "float") {
      given[py::str(key)] = *spec.number(key, {});
    } else if (type == "int") {
      given[py::str(key)] = *spec.integer(key, 0, std::uint64_t{1} << 62);
    } else if (type == "bool") {
      given[py::str(key)] = spec.flag(key, false);
    } else {
      given[py::str(key)] = *spec.word(key);
    }
  }
  return given;
}

using Keys = std::vector<std::pair<std::string, std::string>>;

// Registrations are kept here and ended before the interpreter is: nothing of Python may be left for the destructors
// that run after it.
std::map<std::string, Registration>& registrations() {
  static auto* const all = new std::map<std::string, Registration>;
  return *all;
}

void register_python(const std::string& name, const py::object& factory, const Keys& keys, const std::string& summary,
                     const std::string& example) {
  auto held = hold(factory);
  Registration registration = register_sparsifier(
      {name, summary, example},
      [held, keys, name](Spec& spec, const SifterContext& context) -> std::unique_ptr<Sparsifier> {
        return call_python([&]() -> std::unique_ptr<Sparsifier> {
          const py::dict given = read_keys(spec, keys);
          spec.finish();  // a misspelt key before what the class says about a missing one
          py::object made = py::handle(held.get())(context_of(context), **given);
          if (!py::hasattr(made, "choose") || !py::hasattr(made, "_traits")) {
            throw UsageError(fmt::format("[{}] its factory returned no sparsewire.Sparsifier", name));
          }
          return std::make_unique<PythonSparsifier>(name, std::move(made));
        });
      });
  registrations().insert_or_assign(name, std::move(registration));
}

void unregister_python(const std::string& name) {
  const auto found = registrations().find(name);
  if (found == registrations().end()) {
    throw UsageError(fmt::format("[{}] was not registered by register_sparsifier()", name));
  }
  registrations().erase(found);
}

}  // namespace

void bind_sparsifier(py::module_& module) {
  module.def("_sparsifiers", [] {
    py::list all;
    for (const SparsifierInfo& info : sparsifiers()) {
      all.append(py::make_tuple(info.name, info.summary, info.example));
    }
    return all;
  });
  module.def("_register_sparsifier", &register_python);
  module.def("_unregister_sparsifier", &unregister_python);
  py::module_::import("atexit").attr("register")(py::cpp_function([] { registrations().clear(); }));
}

}  // namespace sparsewire::python
