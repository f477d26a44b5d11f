#include "framework/net/wire_format.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>

#include "framework/bytes.h"
#include "framework/fields/byte_fields.h"

namespace strait::net {
namespace {

// These offsets are the same in every version of the protocol.
constexpr std::size_t kCheckAt = 4;
constexpr std::size_t kVersionAt = 8;

std::uint32_t check_of(std::span<const std::byte> message) {
  const std::span<const std::byte> covered = message.subspan(kVersionAt);
  return static_cast<std::uint32_t>(XXH3_64bits(covered.data(), covered.size()));
}

// What a correct sender never writes, even if the check matches.
bool is_lying(const MessageHeader& header) {
  const std::uint64_t length = header.payload_length;
  if (header.arrived > kMaxArrived) return true;
  switch (header.kind) {
    case MessageKind::fragment: {
      if (length > kMaxFragmentBytes || header.frame_length > kMaxFrameBytes) return true;
      if (header.position.offset > header.frame_length) return true;
      if (length > header.frame_length - header.position.offset) return true;
      return length == 0 && header.frame_length != 0;  // such a fragment would make no progress
    }
    case MessageKind::status:
    case MessageKind::resend:
    case MessageKind::bye:
      return length != 0;
    case MessageKind::hello:
    case MessageKind::hello_reply:
    case MessageKind::refuse:
    case MessageKind::abort:
    case MessageKind::memory:
      return length > kMaxHelloBytes;
  }
  return true;
}

// Bounds the work for a hello of a peer that has only proved its key.
constexpr std::size_t kMaxTerms = 1000;

const std::string* find_term(const Terms& terms, const std::string& key) {
  const auto found =
      std::find_if(terms.begin(), terms.end(), [&](const auto& term) { return term.first == key; });
  return found == terms.end() ? nullptr : &found->second;
}

std::string has_term(const Hello& hello, const std::string& key, const std::string* value) {
  if (value == nullptr) return fmt::format("{} has no {}", hello.name.describe(), key);
  return fmt::format("{} has {} = \"{}\"", hello.name.describe(), key, *value);
}

}  // namespace

FrameHash hash_frame(std::span<const std::byte> frame) {
  const XXH128_hash_t hash = XXH3_128bits(frame.data(), frame.size());
  return {hash.low64, hash.high64};
}

void check_frame_size(std::uint64_t bytes) {
  if (bytes <= kMaxFrameBytes) return;
  throw std::invalid_argument(
      fmt::format("a frame of {} bytes is beyond the {} that a link takes", bytes, kMaxFrameBytes));
}

void seal(MessageHeader header, std::span<std::byte> message) {
  header.payload_length = static_cast<std::uint32_t>(message.size() - kHeaderBytes);
  ByteWriter writer(message.first(kHeaderBytes));
  writer.value(kMagic);
  writer.value(std::uint32_t{0});  // the check is written last
  writer.value(kProtocolVersion);
  writer.value(header.kind);
  writer.value(header.flows);
  writer.value(header.wanted_flows);
  writer.value(header.generation);
  writer.value(header.run.bytes);
  writer.value(header.position);
  writer.value(header.frame_length);
  writer.value(header.frame_hash);
  writer.value(header.received);
  writer.value(header.taken);
  writer.value(header.arrived);
  writer.value(header.attempt);
  writer.value(header.payload_length);
  ByteWriter(message.subspan(kCheckAt)).value(check_of(message));
}

Parsed parse_message(std::span<const std::byte> message) {
  Parsed parsed;
  const auto fail = [&parsed](WireFault fault) {
    parsed.fault = fault;
    return parsed;
  };
  if (message.size() <= kVersionAt) return fail(WireFault::truncated);
  ByteReader reader(message);
  if (reader.value<std::uint32_t>() != kMagic) return fail(WireFault::foreign);
  // Magic, check and version have the same offsets in every version, so that two versions can name
  // each other. No field is trusted before the check.
  if (reader.value<std::uint32_t>() != check_of(message)) return fail(WireFault::damaged);
  parsed.version = reader.value<std::uint8_t>();
  if (parsed.version != kProtocolVersion) return fail(WireFault::other_version);
  if (message.size() < kHeaderBytes) return fail(WireFault::truncated);

  MessageHeader& header = parsed.header;
  const auto kind = reader.value<std::uint8_t>();
  if (kind == 0 || kind > static_cast<std::uint8_t>(kLastKind)) return fail(WireFault::lying);
  header.kind = static_cast<MessageKind>(kind);
  header.flows = reader.value<std::uint8_t>();
  header.wanted_flows = reader.value<std::uint8_t>();
  header.generation = reader.value<std::uint32_t>();
  header.run.bytes = reader.value<std::array<std::byte, 16>>();
  header.position = reader.value<Position>();
  header.frame_length = reader.value<std::uint64_t>();
  header.frame_hash = reader.value<FrameHash>();
  header.received = reader.value<Position>();
  header.taken = reader.value<std::uint64_t>();
  header.arrived = reader.value<std::uint64_t>();
  header.attempt = reader.value<std::uint32_t>();
  header.payload_length = reader.value<std::uint32_t>();
  if (message.size() - kHeaderBytes != header.payload_length) return fail(WireFault::truncated);
  if (is_lying(header)) return fail(WireFault::lying);
  parsed.payload = message.subspan(kHeaderBytes);
  return parsed;
}

void describe(auto& f, fields::Is<Hello> auto& m) {
  f("stage", m.name.stage), f("replica", m.name.replica), f("incarnation", m.incarnation);
  f("peer_incarnation", m.peer_incarnation), f("fragment_bytes", m.fragment_bytes);
  f("terms", fields::at_most(m.terms, kMaxTerms));
}

std::vector<std::byte> encode_hello(const Hello& hello) {
  return fields::to_bytes<std::vector<std::byte>>(hello);
}

std::optional<Hello> decode_hello(std::span<const std::byte> bytes) {
  try {
    return fields::from_bytes<Hello>(bytes, "hello");
  } catch (const fields::MessageError&) {
    return std::nullopt;  // the link refuses the peer, whatever is wrong
  }
}

// The keys of both, in the order of the first, so that both ends name the same disagreement.
std::optional<std::string> disagreement(const Hello& one, const Hello& other) {
  std::vector<std::string> keys;
  for (const auto& term : one.terms) keys.push_back(term.first);
  for (const auto& term : other.terms) {
    if (find_term(one.terms, term.first) == nullptr) keys.push_back(term.first);
  }
  for (const std::string& key : keys) {
    const std::string* ours = find_term(one.terms, key);
    const std::string* theirs = find_term(other.terms, key);
    if (ours != nullptr && theirs != nullptr && *ours == *theirs) continue;
    return fmt::format("{}, {}", has_term(one, key, ours), has_term(other, key, theirs));
  }
  return std::nullopt;
}

GreetingResult judge_greeting(const GreetingSelf& self, const RunId& run, std::uint32_t generation,
                              const Hello& theirs) {
  using Kind = LinkError::Kind;
  const std::string us = self.hello.name.describe();
  const std::string them = theirs.name.describe();
  GreetingResult outcome;
  // Run and generation come first: an older process has other terms too, but its age is the cause.
  if (run != self.run) {
    outcome.refusal = LinkError(
        Kind::refused,
        fmt::format("{}: {} belongs to run {}, {} to run {}; an old process or a wrong address",
                    self.link, us, self.run.hex(), them, run.hex()));
  } else if (generation < self.generation) {
    outcome.refusal = LinkError(
        Kind::fenced, fmt::format("{}: {} is of generation {}, but the run is at generation {}; it "
                                  "was restarted without this process",
                                  self.link, them, generation, self.generation));
  } else if (generation > self.generation) {
    outcome.fatal = LinkError(
        Kind::fenced, fmt::format("{}: {} is of generation {}, but the run is at generation {}; it "
                                  "was restarted without this process",
                                  self.link, us, self.generation, generation));
  } else if (theirs.name != self.peer) {
    outcome.refusal = LinkError(
        Kind::refused,
        fmt::format("{}: {} expects {} here, not {}", self.link, us, self.peer.describe(), them));
  } else if (self.hello.peer_incarnation != 0 &&
             theirs.incarnation != self.hello.peer_incarnation) {
    outcome.fatal = LinkError(
        Kind::lost,
        fmt::format("{}: {} has restarted or was started twice, and the state of this link is lost",
                    self.link, them));
    outcome.refusal = outcome.fatal;
  } else if (theirs.peer_incarnation != 0 && theirs.peer_incarnation != self.hello.incarnation) {
    outcome.refusal = LinkError(
        Kind::lost,
        fmt::format("{}: {} has restarted or was started twice, and the state of this link is lost",
                    self.link, us));
  } else if (const auto words = disagreement(theirs, self.hello)) {
    outcome.fatal = LinkError(
        Kind::refused, fmt::format("{}: {}; both must be started from the same plan and build",
                                   self.link, *words));
    outcome.refusal = outcome.fatal;
  }
  return outcome;
}

}  // namespace strait::net
