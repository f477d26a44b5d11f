// libFuzzer target: any bytes as messages to a parser, a hello and a link end that is in the middle
// of a conversation. Build with clang and -DSTRAIT_FUZZ=ON; run build/…/tests/wire_fuzz [corpus].
#include <cstdlib>
#include <cstring>

#include "framework/net/link_protocol.h"
#include "framework/net/wire_format.h"

using strait::net::LinkProtocol;
using strait::net::ProtocolOptions;

namespace {

constexpr std::size_t kMostHeld = std::size_t{1} << 20;

ProtocolOptions end_options(ProtocolOptions::Role role) {
  ProtocolOptions options;
  options.role = role;
  options.incarnation = role == ProtocolOptions::Role::opener ? 1 : 2;
  options.link.name = "fuzz";
  return options;
}

std::vector<std::byte> sealed(const LinkProtocol::Outgoing& outgoing) {
  std::vector<std::byte> message(strait::net::kHeaderBytes + outgoing.payload.size());
  std::memcpy(message.data() + strait::net::kHeaderBytes, outgoing.payload.data(),
              outgoing.payload.size());
  strait::net::seal(outgoing.header, message);
  return message;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  strait::net::decode_hello(bytes);
  strait::net::parse_message(bytes);

  const LinkProtocol::Time now{};
  LinkProtocol opener(end_options(ProtocolOptions::Role::opener), now);
  LinkProtocol answerer(end_options(ProtocolOptions::Role::answerer), now);
  opener.path_up(now);
  answerer.receive(now, sealed(*opener.next(now)));
  opener.receive(now, sealed(*answerer.next(now)));

  // The input is cut into header, payload and header again; sealing makes each of them intact, so
  // that what lies behind the check is reached.
  std::size_t held = 0;
  for (std::span<const std::byte> rest = bytes; rest.size() >= strait::net::kHeaderBytes;) {
    const std::size_t payload = std::min<std::size_t>(static_cast<std::size_t>(rest[0]),
                                                      rest.size() - strait::net::kHeaderBytes);
    const std::size_t length = strait::net::kHeaderBytes + payload;
    std::vector<std::byte> message(rest.begin(),
                                   rest.begin() + static_cast<std::ptrdiff_t>(length));
    rest = rest.subspan(length);
    strait::net::MessageHeader header;
    std::memcpy(&header.position, message.data() + 32, sizeof header.position);
    std::memcpy(&header.frame_length, message.data() + 48, sizeof header.frame_length);
    std::memcpy(&header.received, message.data() + 72, sizeof header.received);
    std::memcpy(&header.taken, message.data() + 88, sizeof header.taken);
    std::memcpy(&header.arrived, message.data() + 96, sizeof header.arrived);
    std::memcpy(&header.attempt, message.data() + 104, sizeof header.attempt);
    header.kind = static_cast<strait::net::MessageKind>(message[9]);
    header.generation = 1;
    strait::net::seal(header, message);
    answerer.receive(now, message);
    while (answerer.next(now)) {
    }
    while (const auto frame = answerer.take()) held += frame->size();
    if (held > kMostHeld + size) std::abort();  // more came out than ever went in
  }
  return 0;
}
