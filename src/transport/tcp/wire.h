// The bytes between two ranks. Everything that is read here may come from a stranger, so nothing is trusted: a header
// that cannot be right is refused. All numbers are little-endian.
//
// Two ranks have two connections: one for messages, and one for control messages, which must get through while a
// message is not being read. Both begin with a hello of each side: first of the one that connects, whose hello the
// other side answers with its own, or with a refusal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sparsewire::tcp {

inline constexpr std::size_t kHeaderBytes = 24;  // of each kind
inline constexpr std::size_t kLongestToken = 4096;
inline constexpr int kMostRanks = 4096;

using Header = std::span<std::byte, kHeaderBytes>;
using ConstHeader = std::span<const std::byte, kHeaderBytes>;

enum class Channel : std::uint8_t { messages, control };
inline constexpr int kChannels = 2;

// The header of a connection; the token follows.
struct Hello {
  Channel channel = Channel::messages;
  int rank = 0;
  int size = 1;
  std::size_t token_bytes = 0;
};
void write(const Hello& hello, Header header);
std::optional<Hello> read_hello(ConstHeader header);
std::vector<std::byte> hello_with_token(const Hello& hello, std::string_view token);

// The answer to a hello that is not right: this header, and the connection is closed. Every version reads it.
enum class Refusal : std::uint8_t { version, token, size, rank, taken };
void write(Refusal why, Header header);
std::optional<Refusal> read_refusal(ConstHeader header);
bool is_hello_of_another_version(ConstHeader header);

// The time does not depend on where they differ.
bool is_same_token(std::span<const std::byte> presented, std::string_view token);

// The header of a message; its bytes follow.
struct MessageHeader {
  std::uint64_t number = 0;  // how many messages went before it from this rank to that one
  std::uint64_t length = 0;
};
void write(const MessageHeader& message, Header header);
std::optional<MessageHeader> read_message_header(ConstHeader header);

struct ControlMessage {
  enum class Kind : std::uint8_t {
    status,  // I am in a call, and made progress `age_ms` ago; `missing`: the ranks that I wait for, none after the
             // call
    failed,  // all calls fail from now on, because of `rank`; `text` says why
  };
  Kind kind = Kind::status;
  int rank = 0;
  std::int32_t age_ms = 0;
  std::vector<std::int32_t> missing = {};
  std::string text = {};
};

// Appends it to `bytes`. A longer text than a control message may have is cut.
void write(const ControlMessage& message, std::vector<std::byte>& bytes);

// What the beginning of `bytes` is: a control message of `used` bytes, a part of one, or neither. `size`: how many
// ranks there are.
enum class Parsed : std::uint8_t { message, incomplete, garbage };
Parsed read_control(std::span<const std::byte> bytes, int size, ControlMessage& message, std::size_t& used);

}  // namespace sparsewire::tcp
