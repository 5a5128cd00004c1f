#include "transport/tcp/wire.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace sparsewire::tcp {
namespace {

constexpr std::uint32_t kHelloMagic = 0x48775053;    // "SPwH"
constexpr std::uint32_t kRefusalMagic = 0x52775053;  // "SPwR"
constexpr std::uint32_t kMessageMagic = 0x4D775053;  // "SPwM"
constexpr std::uint32_t kControlMagic = 0x43775053;  // "SPwC"
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kLongestText = 4096;

template <class Number>
void put(std::byte*& to, Number number) {
  for (std::size_t i = 0; i < sizeof(Number); ++i) *to++ = static_cast<std::byte>(number >> (8 * i));
}

template <class Number>
Number take(const std::byte*& from) {
  Number number = 0;
  for (std::size_t i = 0; i < sizeof(Number); ++i) number |= static_cast<Number>(*from++) << (8 * i);
  return number;
}

std::uint32_t take32(const std::byte*& from) { return take<std::uint32_t>(from); }
std::uint64_t take64(const std::byte*& from) { return take<std::uint64_t>(from); }

bool is_rank(std::uint32_t number, int size) { return number < static_cast<std::uint32_t>(size); }

}  // namespace

void write(const Hello& hello, Header header) {
  std::byte* next = header.data();
  put(next, kHelloMagic);
  put(next, kVersion);
  put(next, static_cast<std::uint32_t>(hello.channel));
  put(next, static_cast<std::uint32_t>(hello.rank));
  put(next, static_cast<std::uint32_t>(hello.size));
  put(next, static_cast<std::uint32_t>(hello.token_bytes));
}

std::optional<Hello> read_hello(ConstHeader header) {
  const std::byte* next = header.data();
  if (take32(next) != kHelloMagic || take32(next) != kVersion) return std::nullopt;
  const std::uint32_t channel = take32(next);
  const std::uint32_t rank = take32(next);
  const std::uint32_t size = take32(next);
  const std::uint32_t token_bytes = take32(next);
  if (channel >= kChannels || size > kMostRanks || !is_rank(rank, static_cast<int>(size))) return std::nullopt;
  if (token_bytes > kLongestToken) return std::nullopt;
  return Hello{static_cast<Channel>(channel), static_cast<int>(rank), static_cast<int>(size), token_bytes};
}

void write(Refusal why, Header header) {
  std::fill(header.begin(), header.end(), std::byte{0});
  std::byte* next = header.data();
  put(next, kRefusalMagic);
  put(next, kVersion);
  put(next, static_cast<std::uint32_t>(why));
}

std::optional<Refusal> read_refusal(ConstHeader header) {
  const std::byte* next = header.data();
  if (take32(next) != kRefusalMagic) return std::nullopt;
  const bool is_this_version = take32(next) == kVersion;
  const std::uint32_t why = take32(next);
  if (!is_this_version || why > static_cast<std::uint32_t>(Refusal::taken)) return Refusal::version;
  return static_cast<Refusal>(why);
}

bool is_hello_of_another_version(ConstHeader header) {
  const std::byte* next = header.data();
  return take32(next) == kHelloMagic && take32(next) != kVersion;
}

std::vector<std::byte> hello_with_token(const Hello& hello, std::string_view token) {
  std::vector<std::byte> bytes(kHeaderBytes + token.size());
  write(hello, Header(bytes.data(), kHeaderBytes));
  std::transform(token.begin(), token.end(), bytes.begin() + kHeaderBytes,
                 [](char c) { return static_cast<std::byte>(c); });
  return bytes;
}

bool is_same_token(std::span<const std::byte> presented, std::string_view token) {
  if (presented.size() != token.size()) return false;
  volatile unsigned char difference = 0;
  for (std::size_t i = 0; i < token.size(); ++i) {
    difference = difference | (static_cast<unsigned char>(presented[i]) ^ static_cast<unsigned char>(token[i]));
  }
  return difference == 0;
}

void write(const MessageHeader& message, Header header) {
  std::byte* next = header.data();
  put(next, kMessageMagic);
  put(next, std::uint32_t{0});
  put(next, message.number);
  put(next, message.length);
}

std::optional<MessageHeader> read_message_header(ConstHeader header) {
  const std::byte* next = header.data();
  if (take32(next) != kMessageMagic || take32(next) != 0) return std::nullopt;
  MessageHeader message;
  message.number = take64(next);
  message.length = take64(next);
  if (message.length > static_cast<std::uint64_t>(std::numeric_limits<std::ptrdiff_t>::max())) return std::nullopt;
  return message;
}

void write(const ControlMessage& message, std::vector<std::byte>& bytes) {
  const std::size_t text_bytes = std::min(message.text.size(), kLongestText);
  const std::size_t begin = bytes.size();
  bytes.resize(begin + kHeaderBytes + message.missing.size() * sizeof(std::int32_t) + text_bytes);
  std::byte* next = bytes.data() + begin;
  put(next, kControlMagic);
  put(next, static_cast<std::uint32_t>(message.kind));
  put(next, static_cast<std::uint32_t>(message.rank));
  put(next, static_cast<std::uint32_t>(message.age_ms));
  put(next, static_cast<std::uint32_t>(message.missing.size()));
  put(next, static_cast<std::uint32_t>(text_bytes));
  for (const std::int32_t rank : message.missing) put(next, static_cast<std::uint32_t>(rank));
  if (text_bytes != 0) std::memcpy(next, message.text.data(), text_bytes);
}

Parsed read_control(std::span<const std::byte> bytes, int size, ControlMessage& message, std::size_t& used) {
  if (bytes.size() < kHeaderBytes) return Parsed::incomplete;
  const std::byte* next = bytes.data();
  if (take32(next) != kControlMagic) return Parsed::garbage;
  const std::uint32_t kind = take32(next);
  const std::uint32_t rank = take32(next);
  const std::uint32_t age_ms = take32(next);
  const std::uint32_t missing = take32(next);
  const std::uint32_t text_bytes = take32(next);
  if (kind > static_cast<std::uint32_t>(ControlMessage::Kind::failed) || !is_rank(rank, size)) return Parsed::garbage;
  if (age_ms > static_cast<std::uint32_t>(std::numeric_limits<std::int32_t>::max())) return Parsed::garbage;
  // A rank may be missing twice: what it sends, and what it receives.
  if (missing > 2 * static_cast<std::uint32_t>(size) || text_bytes > kLongestText) return Parsed::garbage;
  const std::size_t needed = kHeaderBytes + missing * sizeof(std::int32_t) + text_bytes;
  if (bytes.size() < needed) return Parsed::incomplete;

  message.kind = static_cast<ControlMessage::Kind>(kind);
  message.rank = static_cast<int>(rank);
  message.age_ms = static_cast<std::int32_t>(age_ms);
  message.missing.clear();
  for (std::uint32_t i = 0; i < missing; ++i) {
    const std::uint32_t other = take32(next);
    if (!is_rank(other, size)) return Parsed::garbage;
    message.missing.push_back(static_cast<std::int32_t>(other));
  }
  message.text.assign(reinterpret_cast<const char*>(next), text_bytes);
  used = needed;
  return Parsed::message;
}

}  // namespace sparsewire::tcp
