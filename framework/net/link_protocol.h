#pragma once

#include "framework/net/link.h"
#include "framework/net/link_options.h"
#include "framework/net/receive_assembly.h"
#include "framework/net/send_window.h"
#include "framework/net/wire_format.h"

namespace strait::net {

// A heartbeat is sent every kStatusEvery. A path without any for kSilence is down.
inline constexpr std::chrono::milliseconds kStatusEvery{1000};
inline constexpr std::chrono::milliseconds kSilence{3000};
// An unanswered hello is repeated every kGreetingEvery: the peer drops a hello that arrives before
// its program has added the link.
inline constexpr std::chrono::milliseconds kGreetingEvery{200};

struct ProtocolOptions {
  // opener: the connecting end, which sends the first hello
  enum class Role : std::uint8_t { opener, answerer };
  Role role = Role::opener;
  ProcessName name;
  RunId run;
  std::uint32_t generation = 1;
  // Random, never 0. Tells this end from its successor after a restart.
  std::uint64_t incarnation = 0;
  std::string peer_address;  // the peer's address, for messages: "127.0.0.1:4711"
  LinkOptions link;
};

// One end of a link as a pure state machine: time and messages in, messages and frames out. No
// socket, no clock, no lock; the owner serialises all calls. The wire may lose messages when it is
// cut, and may repeat, reorder, damage and truncate them. Frames still come out exactly once and in
// order. The wire must not forge messages: authenticating the peer is the transport's task.
class LinkProtocol {
 public:
  using Time = std::chrono::steady_clock::time_point;
  LinkProtocol(ProtocolOptions options, Time now);

  // For the program.
  bool has_room_for(std::uint64_t bytes) const { return sender_.has_room_for(bytes); }
  void send(Frame frame, FrameHash hash) { sender_.push(std::move(frame), hash); }
  std::optional<Frame> take();
  const SendWindow& window() const { return sender_; }
  void abort(const LinkError& cause);
  void close();  // the owner ends the link; the last message tells the peer
  const std::optional<LinkError>& error() const { return error_; }

  // For the wire.
  // A path consists of flows: connections that keep their own order. It is down with its last flow.
  // When it loses one of several, what that flow held is asked for again over the others.
  void path_up(Time now, unsigned flow = 0);  // opener: the connection is up
  void path_down(Time now, unsigned flow = 0);
  void close_flow(unsigned flow) { flows_ &= ~flow_bit(flow); }  // an unused one
  void receive(Time now, std::span<const std::byte> message, unsigned flow = 0);
  // Bytes came on the connection, but not yet a whole message: the path is slow, not silent.
  void receive_part(Time now) {
    if (greeted_ && !error_) state_.last_heard = now;
  }
  void tick(Time now);  // several times a second, after the messages that have arrived
  // Why handshakes failed; part of the error if no hello succeeds.
  void record_problem(std::string message) { problem_ = std::move(message); }
  // The payload of MessageKind::memory: sent once the peer is greeted, and on each new path.
  void announce_memory(std::vector<std::byte> announcement) {
    memory_payload_ = std::move(announcement);
    memory_due_ = true;
  }
  // The same, of the peer, once; std::nullopt: nothing new.
  std::optional<std::vector<std::byte>> take_peer_memory() {
    return std::exchange(peer_memory_, std::nullopt);
  }
  void set_peer_address(std::string address) { options_.peer_address = std::move(address); }

  // The next message to send now: seal(header, …payload…). The payload is valid until the next call
  // of any method.
  struct Outgoing {
    MessageHeader header;
    std::span<const std::byte> payload;
  };
  // The payload of a fragment is at most the limit. 0 holds back fragments and nothing else.
  std::optional<Outgoing> next(Time now, std::uint64_t fragment_limit = kMaxFragmentBytes);
  // A status that is due on this one of several flows: it shows that the flow lives, and how far
  // its peer has got.
  std::optional<Outgoing> next_heartbeat(Time now, unsigned flow);

  void want_flows(unsigned own, unsigned most) {
    wanted_flows_ = own;
    most_flows_ = most;
  }
  // By this end or the peer, and at most the limit of this end.
  unsigned wanted_flows() const {
    return std::min(most_flows_, std::max(wanted_flows_, peer_wants_flows_));
  }
  std::uint8_t flows() const { return flows_; }  // bit k: messages can be sent on flow k
  std::uint8_t used_flows() const;               // as many of them as are wanted

  // A hello was agreed on, and the path is up.
  bool connected() const { return !error_ && greeted_ && ticked_ - state_.last_heard < kSilence; }

  Time last_heard() const { return state_.last_heard; }

  LinkState state() const;

 private:
  static std::uint8_t flow_bit(unsigned flow) { return static_cast<std::uint8_t>(1U << flow); }
  void begin_path(Time now);
  void accept_greeting(Time now, const MessageHeader& header, std::span<const std::byte> payload,
                       unsigned flow);
  void accept_fragment(Time now, const MessageHeader& header, std::span<const std::byte> payload,
                       unsigned flow);
  void accept_flow(const MessageHeader& header, unsigned flow);
  void accept_final(const MessageHeader& header, std::span<const std::byte> payload);
  bool belongs(const Parsed& parsed);
  void reject() { ++state_.rejected_fragments; }
  void ask_again(Time now) {
    resend_due_ = true;
    asked_at_ = now;
  }
  void give_up_if_due(Time now);
  void fail(const LinkError& cause, MessageKind kind);
  void refuse(const LinkError& words);
  std::optional<Outgoing> next_control(Time now);
  Outgoing status();
  Outgoing outgoing(MessageKind kind, std::span<const std::byte> payload = {});
  std::string peer() const;
  std::uint64_t nanoseconds_until_last_data() const {
    return static_cast<std::uint64_t>(
        std::chrono::nanoseconds(state_.last_data - created_at_).count());
  }

  ProtocolOptions options_;
  SendWindow sender_;
  ReceiveAssembly receiver_;
  Hello hello_;        // of this end
  bool path_ = false;  // opener: a connection is up
  std::uint8_t flows_ = 0;
  unsigned wanted_flows_ = 1;
  unsigned most_flows_ = kMaxFlows;
  unsigned peer_wants_flows_ = 1;
  std::array<Time, kMaxFlows> heartbeat_at_{};
  // opener: the attempt that the first hello on this path asks for
  std::uint32_t path_attempt_ = 0;
  bool agreed_ = false;   // a hello was agreed on once
  bool greeted_ = false;  // a hello was agreed on over the current path
  std::optional<LinkError> error_;
  bool peer_knows_ = false;  // the peer ended the link or knows the end: no final message is due

  // What is due, in the order of next_control().
  bool final_due_ = false;
  bool refusal_due_ = false;
  bool greeting_due_ = false;
  bool resend_due_ = false;
  bool memory_due_ = false;
  bool status_due_ = false;
  MessageKind final_kind_ = MessageKind::abort;
  std::vector<std::byte> final_payload_;
  std::vector<std::byte> refusal_words_;
  std::vector<std::byte> greeting_words_;
  std::vector<std::byte> memory_payload_;  // empty: no memory is shared
  std::optional<std::vector<std::byte>> peer_memory_;

  Time created_at_;
  Time ticked_;
  Time asked_at_{};
  Time greeted_at_{};
  Time status_at_{};
  std::string problem_;
  LinkState state_;
};

}  // namespace strait::net
