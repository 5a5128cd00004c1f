// Transports as Python holds them, and how a call that waits for other ranks is made.
#pragma once

#include <pybind11/pybind11.h>

#include <functional>
#include <memory>

#include "made.h"
#include "one_caller.h"
#include "sparsewire/transport.h"

namespace sparsewire::python {

namespace py = pybind11;

// The transport of one rank, with whatever it needs to live.
class HeldTransport {
 public:
  HeldTransport(Transport& transport, std::shared_ptr<void> owner)
      : owner_(std::move(owner)), transport_(transport), door_("Transport") {}

  Transport& get() const noexcept { return transport_; }
  OneCaller& door() noexcept { return door_; }

 private:
  std::shared_ptr<void> owner_;
  Transport& transport_;
  OneCaller door_;
};

// For a transport that a make_..._transport() returned.
inline std::shared_ptr<HeldTransport> hold(std::unique_ptr<Transport> transport) {
  std::shared_ptr<Transport> shared = std::move(transport);
  return std::make_shared<HeldTransport>(*shared, shared);
}

// A process alone.
std::shared_ptr<HeldTransport> make_alone();

// Makes a call that may wait for other ranks, with the GIL released. On Python's main thread a signal whose handler
// raises, such as Ctrl-C, ends it: the transport fails, and the exception of the handler is thrown.
// REQUIRES: the GIL is held.
void wait_for_ranks(Transport& transport, const std::function<void()>& call);

}  // namespace sparsewire::python

namespace pybind11::detail {

template <>
class type_caster<sparsewire::python::HeldTransport>
    : public sparsewire::python::MadeCaster<sparsewire::python::HeldTransport> {};

}  // namespace pybind11::detail
