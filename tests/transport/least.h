// As little as a transport can have: shows what the defaults make of do_send_receive.
#pragma once

#include "sparsewire/transport.h"

namespace sparsewire {

class LeastTransport final : public Transport {
 public:
  explicit LeastTransport(Transport& inner) : inner_(inner) {}

  int rank() const noexcept override { return inner_.rank(); }
  int size() const noexcept override { return inner_.size(); }

 protected:
  void do_send_receive(std::span<const Outgoing> out, std::span<const Incoming> in) override {
    inner_.send_receive(out, in);
  }

 private:
  Transport& inner_;
};

}  // namespace sparsewire
