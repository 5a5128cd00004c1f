// Transports that inspect or change the messages that pass through them.
#pragma once

#include <cstring>
#include <vector>

#include "exchange/bodies.h"
#include "exchange/step_trailer.h"
#include "sparsewire/codec.h"

namespace sparsewire {

// Passes everything on to another transport.
class WrappedTransport : public Transport {
 public:
  explicit WrappedTransport(Transport& inner) : inner_(inner) {}

  int rank() const noexcept override { return inner_.rank(); }
  int size() const noexcept override { return inner_.size(); }
  void fail(std::string_view why) noexcept override { inner_.fail(why); }

 protected:
  void do_send_receive(std::span<const Outgoing> out, std::span<const Incoming> in) override {
    inner_.send_receive(out, in);
  }
  void do_all_reduce_sum(WritableNumbers numbers) override { inner_.all_reduce_sum(numbers); }

  static bool is_frame(std::span<const std::byte> bytes) {
    return bytes.size() >= 4 && std::memcmp(bytes.data(), "SWFR", 4) == 0;
  }
  // The size of the trailer behind a frame.
  static std::size_t trailer_size() {
    Message message;
    append(message, StepTrailer{});
    return message.size();
  }

 private:
  Transport& inner_;
};

// Flips one bit of a value in one of the frames that this rank receives in a step.
class TamperingTransport final : public WrappedTransport {
 public:
  using WrappedTransport::WrappedTransport;

  void begin_step(bool tampers) {
    tampers_ = tampers;
    calls_ = 0;
  }
  int flipped() const { return flipped_; }

  void do_send_receive(std::span<const Outgoing> out, std::span<const Incoming> in) override {
    WrappedTransport::do_send_receive(out, in);
    ++calls_;
    if (!tampers_) return;
    // Where there are servers, the first call of a step moves uplink frames: a change there reaches all ranks.
    for (const Incoming& message : in) {
      if (message.rank == rank() || !is_frame(*message.bytes)) continue;
      if (in.size() > 1 && calls_ == 1 && has_servers) continue;
      if (flip(*message.bytes)) {
        ++flipped_;
        tampers_ = false;
        return;
      }
    }
  }

  bool has_servers = false;

 private:
  // Flips a bit that is high enough to change the sum. The frame gets a valid checksum again.
  static bool flip(bodies::Bytes& message) {
    const std::size_t size = message.size() - trailer_size();
    SparseVector vector;
    if (decode(std::span(message).first(size), vector) != DecodeStatus::ok || vector.size() == 0) return false;
    float& value = vector.values[vector.size() / 2];
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, 4);
    bits ^= 1U << 12;
    std::memcpy(&value, &bits, 4);
    bodies::Bytes changed;
    Codec("auto:values=f32").encode(vector, changed);
    changed.insert(changed.end(), message.begin() + static_cast<std::ptrdiff_t>(size), message.end());
    message = changed;
    return true;
  }

  bool tampers_ = false;
  int calls_ = 0;
  int flipped_ = 0;
};

}  // namespace sparsewire
