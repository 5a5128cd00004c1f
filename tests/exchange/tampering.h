// Transports that inspect or change the messages that pass through them.
#pragma once

#include <array>
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

// How a message is damaged.
enum class Damage : std::uint8_t { first_bit, middle_bit, last_bit, cut_one, cut_all };
inline constexpr std::array kDamages = {Damage::first_bit, Damage::middle_bit, Damage::last_bit, Damage::cut_one,
                                        Damage::cut_all};

// Damages one of the messages that this rank receives.
class DamagingTransport final : public WrappedTransport {
 public:
  using WrappedTransport::WrappedTransport;

  // The message number `at` from here on, counted from 0; a negative number: none.
  void damage(int at, Damage how) {
    left_ = at;
    how_ = how;
    has_damaged = false;
  }
  void stop() { left_ = -1; }
  void begin() { calls_ = 0; }
  bool has_damaged = false;
  int call_of_damage = 0;  // since begin(), from 0

  void do_send_receive(std::span<const Outgoing> out, std::span<const Incoming> in) override {
    WrappedTransport::do_send_receive(out, in);
    for (const Incoming& message : in) {
      if (message.bytes->empty() || left_ < 0 || left_-- > 0) continue;
      change(*message.bytes);
      has_damaged = true;
      call_of_damage = calls_;
    }
    ++calls_;
  }
  // Of messages, as between processes.
  void do_all_reduce_sum(WritableNumbers numbers) override { Transport::do_all_reduce_sum(numbers); }

 private:
  void change(bodies::Bytes& message) const {
    switch (how_) {
      case Damage::first_bit:
        message.front() ^= std::byte{1};
        break;
      case Damage::middle_bit:
        message[message.size() / 2] ^= std::byte{16};
        break;
      case Damage::last_bit:
        message.back() ^= std::byte{128};
        break;
      case Damage::cut_one:
        message.pop_back();
        break;
      case Damage::cut_all:
        message.clear();
        break;
    }
  }

  int left_ = -1;
  int calls_ = 0;
  Damage how_ = Damage::first_bit;
};

}  // namespace sparsewire
