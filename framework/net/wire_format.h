#pragma once

#include "framework/net/identity.h"
#include "framework/net/link_error.h"
#include "framework/net/link_options.h"

namespace strait::net {

// The bytes that both ends share. WIRE.md draws them and computes an example. Everything here is
// pure.

inline constexpr std::uint32_t kMagic = 0x54525453;  // "STRT" as bytes
inline constexpr std::uint8_t kProtocolVersion = 4;
inline constexpr std::size_t kHeaderBytes = 112;

// Limits that are checked before anything is allocated.
inline constexpr std::uint64_t kMaxFragmentBytes = std::uint64_t{16} << 20;
inline constexpr std::uint64_t kMaxFrameBytes = std::uint64_t{4} << 30;
inline constexpr std::uint64_t kMaxHelloBytes = std::uint64_t{1} << 20;
// Connections that carry one link.
inline constexpr unsigned kMaxFlows = 8;
inline constexpr std::uint64_t kMaxArrived = std::uint64_t{1} << 62;  // ns; 146 years

enum class MessageKind : std::uint8_t {
  hello = 1,    // opener to answerer, on every new path; payload: Hello
  hello_reply,  // the answer; payload: Hello
  refuse,       // a hello that cannot be agreed to; payload: reason byte, words
  fragment,     // bytes of a frame
  status,       // header only: acknowledgement and heartbeat
  resend,       // send again from `received` on
  abort,        // the link was ended on purpose; payload: words
  bye,          // the other end was closed
  memory,       // where the sender's memory is, and whether it reads the receiver's
};
inline constexpr MessageKind kLastKind = MessageKind::memory;

// A position in the stream of one direction: byte `offset` of frame `sequence`. The end of a frame
// is the start of the next one.
struct Position {
  std::uint64_t sequence = 0;
  std::uint64_t offset = 0;
  auto operator<=>(const Position&) const = default;
};

struct FrameHash {  // XXH3-128 of a whole frame
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  bool operator==(const FrameHash&) const = default;
};
FrameHash hash_frame(std::span<const std::byte> frame);

// The same limit for every kind of link. std::invalid_argument beyond kMaxFrameBytes.
void check_frame_size(std::uint64_t bytes);

struct MessageHeader {
  MessageKind kind = MessageKind::status;
  std::uint8_t flows = 0;         // bit k: the sender distributes its messages over flow k too
  std::uint8_t wanted_flows = 1;  // how many flows the sender wants
  std::uint32_t generation = 0;
  RunId run;
  Position position;               // fragment: its start; status: everything before it was sent
  std::uint64_t frame_length = 0;  // fragment only; so is the hash
  FrameHash frame_hash;
  Position received;        // cumulative: everything before it was received
  std::uint64_t taken = 0;  // frames taken by the receiving program: credit for the window
  // When the last byte before `received` arrived: nanoseconds of a clock that only the sender of
  // this header knows. 0: nothing has arrived.
  std::uint64_t arrived = 0;
  // fragment, status: the sender's. hello, hello_reply, resend: the requested one.
  std::uint32_t attempt = 0;
  std::uint32_t payload_length = 0;
};

// The check covers all bytes after itself, so the header goes last: write the payload to
// message[kHeaderBytes..], then call this. payload_length follows from the span.
void seal(MessageHeader header, std::span<std::byte> message);

enum class WireFault : std::uint8_t {
  none,
  truncated,      // shorter than a header, or than it says; or longer
  foreign,        // not this protocol
  other_version,  // intact, but of another protocol version
  damaged,        // the check is wrong
  lying,          // intact, but impossible: unknown kind, or a length beyond the limits
};

struct Parsed {
  WireFault fault = WireFault::none;
  std::uint8_t version = 0;  // set with other_version
  MessageHeader header;
  std::span<const std::byte> payload;  // of the message parsed
};

// Allocates nothing.
Parsed parse_message(std::span<const std::byte> message);

// How an end identifies itself when a path comes up: the payload of hello and hello_reply. Run and
// generation are in the header of every message.
struct Hello {
  ProcessName name;
  std::uint64_t incarnation = 0;       // random; a restarted end has another one
  std::uint64_t peer_incarnation = 0;  // of the peer that this end was connected to; 0: none yet
  std::uint64_t fragment_bytes = 0;
  Terms terms;
};

std::vector<std::byte> encode_hello(const Hello& hello);

// Nothing if the bytes are not a hello. Lengths are checked before use.
std::optional<Hello> decode_hello(std::span<const std::byte> bytes);

// The first disagreement, in words that both ends can print, or nothing: `stage 0.0 has codec =
// "raw", stage 1.0 has codec = "fixed"`.
std::optional<std::string> disagreement(const Hello& one, const Hello& other);

// What one end knows of itself when it judges the other's hello.
struct GreetingSelf {
  Hello hello;  // ours; its peer_incarnation is 0 before the peer's first hello
  RunId run;
  std::uint32_t generation = 0;
  std::string link;  // "boundary 0>1"
  ProcessName peer;  // the only process that may connect
};

// The judgement of one end about the other's hello. Both empty: they agree.
struct GreetingResult {
  std::optional<LinkError> refusal;  // sent to the peer
  std::optional<LinkError> fatal;    // ends this end too
  bool agreed() const { return !refusal && !fatal; }
};

// Pure. An older generation or a foreign run is refused, and this end waits on for the right peer.
// A newer generation ends this end. Different terms end both ends with the same sentence.
GreetingResult judge_greeting(const GreetingSelf& self, const RunId& run, std::uint32_t generation,
                              const Hello& theirs);

}  // namespace strait::net
