#include "framework/net/link_protocol.h"

#include <fmt/format.h>

#include "framework/bytes.h"

namespace strait::net {
namespace {

using Kind = LinkError::Kind;
using std::chrono::milliseconds;
constexpr std::uint32_t kCorruptLimit = 3;  // one damaged frame may be bad luck on the way
constexpr std::uint64_t kLeastUntaken = std::uint64_t{1} << 20;  // room for one large frame
constexpr std::size_t kMaxErrorText = 16384;  // far below kMaxHelloBytes, the limit of the peer

double seconds_of(std::chrono::steady_clock::duration span) {
  return std::chrono::duration<double>(span).count();
}

std::vector<std::byte> encode_error(const LinkError& error) {
  const auto text = std::string_view(error.what()).substr(0, kMaxErrorText);
  std::vector<std::byte> bytes{static_cast<std::byte>(error.kind())};
  append_bytes(bytes, std::as_bytes(std::span(text)));
  return bytes;
}

}  // namespace

LinkProtocol::LinkProtocol(ProtocolOptions options, Time now)
    : options_(std::move(options)),
      sender_(options_.link.window_bytes,
              std::clamp<std::uint64_t>(options_.link.fragment_bytes, 1, kMaxFragmentBytes)),
      created_at_(now),
      ticked_(now) {
  hello_.name = options_.name;
  hello_.incarnation = options_.incarnation;
  hello_.fragment_bytes = options_.link.fragment_bytes;
  hello_.terms = options_.link.terms;
  state_.name = options_.link.name;
  state_.last_heard = now;
  state_.last_data = now;
}

std::optional<Frame> LinkProtocol::take() {
  std::optional<Frame> frame = receiver_.take();
  if (frame) status_due_ = true;
  return frame;
}

void LinkProtocol::abort(const LinkError& cause) { fail(cause, MessageKind::abort); }

void LinkProtocol::close() {
  fail(LinkError(Kind::lost, fmt::format("{}: this end was closed", options_.link.name)),
       MessageKind::bye);
}

void LinkProtocol::path_up(Time now, unsigned flow) {
  const std::uint8_t before = std::exchange(flows_, flows_ | flow_bit(flow));
  heartbeat_at_.at(flow) = {};
  // A flow that joins others carries nothing yet, so nothing can be lost.
  const bool joins = before != 0 && (before & flow_bit(flow)) == 0;
  if (!joins) begin_path(now);
}

void LinkProtocol::begin_path(Time now) {
  path_ = true;
  greeted_ = false;
  greeting_due_ = options_.role == ProtocolOptions::Role::opener;
  greeted_at_ = now;
  // The peer may have sent bytes into the old path, so all of them are asked for again.
  receiver_.ask_again();
  path_attempt_ = receiver_.asked_attempt();
  if (error_ && !peer_knows_) final_due_ = true;
}

void LinkProtocol::path_down(Time now, unsigned flow) {
  close_flow(flow);
  if (flows_ != 0) {
    if (options_.role == ProtocolOptions::Role::opener) begin_path(now);
    return;
  }
  path_ = false;
  greeted_ = false;
  greeting_due_ = false;
  if (agreed_ && !error_ && options_.link.hold == milliseconds{0}) {
    // A reconnect window of 0 means that the caller handles losses itself, and at once.
    fail(LinkError(Kind::lost,
                   fmt::format("{}: the path to {} broke, {:.1f} s after it was last heard",
                               options_.link.name, peer(), seconds_of(now - state_.last_heard))),
         MessageKind::abort);
  }
}

void LinkProtocol::receive(Time now, std::span<const std::byte> message, unsigned flow) {
  state_.received_bytes += message.size();
  const Parsed parsed = parse_message(message);
  if (!belongs(parsed)) return reject();
  const MessageHeader& header = parsed.header;
  const bool ends = header.kind == MessageKind::refuse || header.kind == MessageKind::abort ||
                    header.kind == MessageKind::bye;
  if (ends) return accept_final(header, parsed.payload);
  if (error_) {
    // The peer has not heard of the end: the message may have been lost on the way.
    final_due_ = !peer_knows_;  // the peer does not know yet
    return;
  }
  if (header.kind == MessageKind::hello || header.kind == MessageKind::hello_reply) {
    return accept_greeting(now, header, parsed.payload, flow);
  }
  if (!agreed_ || !sender_.acknowledge(header)) return reject();
  state_.last_heard = now;
  peer_wants_flows_ = std::clamp<unsigned>(header.wanted_flows, 1, kMaxFlows);
  if (header.kind == MessageKind::resend) {
    if (sender_.rewind(header.received, header.attempt)) heartbeat_at_ = {};
    status_due_ = true;
    return;
  }
  if (header.kind == MessageKind::memory) {
    peer_memory_.emplace(parsed.payload.begin(), parsed.payload.end());
    return;
  }
  accept_flow(header, flow);
  if (header.kind == MessageKind::fragment) {
    return accept_fragment(now, header, parsed.payload, flow);
  }
  const std::uint32_t before = receiver_.asked_attempt();
  receiver_.note_cursor(header, flow);
  if (receiver_.asked_attempt() != before) ask_again(now);
}

// The answerer learns from messages which flows there are. A message that was sent before the
// path began may come from a connection that is gone; its attempt is older.
void LinkProtocol::accept_flow(const MessageHeader& header, unsigned flow) {
  if (options_.role == ProtocolOptions::Role::opener) return;
  if (greeted_ && header.attempt >= receiver_.asked_attempt()) flows_ |= flow_bit(flow);
}

// Whether the message belongs to this protocol, run and generation. Greetings and refusals of
// others pass: they are judged by their contents.
bool LinkProtocol::belongs(const Parsed& parsed) {
  if (parsed.fault == WireFault::other_version) {
    fail(LinkError(Kind::refused,
                   fmt::format("{}: {} speaks version {} of the link protocol, {} version {}; both "
                               "must be the same build",
                               options_.link.name, peer(), parsed.version, options_.name.describe(),
                               kProtocolVersion)),
         MessageKind::refuse);
    final_due_ = true;
    return false;
  }
  if (parsed.fault != WireFault::none) return false;
  const MessageHeader& header = parsed.header;
  if (header.kind == MessageKind::hello || header.kind == MessageKind::hello_reply) return true;
  if (header.kind == MessageKind::refuse) return true;
  return header.run == options_.run && header.generation == options_.generation;
}

void LinkProtocol::accept_greeting(Time now, const MessageHeader& header,
                                   std::span<const std::byte> payload, unsigned flow) {
  const bool answerer = options_.role == ProtocolOptions::Role::answerer;
  const std::optional<Hello> theirs = decode_hello(payload);
  if (!theirs || answerer != (header.kind == MessageKind::hello)) return reject();
  // A late reply to an earlier path's hello: it would request everything twice.
  if (!answerer && header.position.sequence < path_attempt_) return reject();
  const GreetingResult outcome = judge_greeting(
      {hello_, options_.run, options_.generation, options_.link.name, options_.link.peer},
      header.run, header.generation, *theirs);
  if (outcome.fatal) {
    fail(*outcome.fatal, MessageKind::refuse);
    // The newer generation is right, and this process is the one to end: no message is due.
    if (!outcome.refusal) peer_knows_ = true;
    return;
  }
  if (outcome.refusal) {
    ++state_.rejected_fragments;
    problem_ = outcome.refusal->what();
    return refuse(*outcome.refusal);
  }
  if (!sender_.acknowledge(header)) return reject();
  hello_.peer_incarnation = theirs->incarnation;
  sender_.limit_fragment(theirs->fragment_bytes);
  // Only a path's first hello starts an attempt; repeated ones must not restart the stream.
  const bool fresh = sender_.rewind(header.received, header.attempt);
  if (answerer) {
    if (fresh) {
      receiver_.ask_again();
      flows_ = 0;
    }
    // A late hello of a former path may come from a connection that is gone.
    if (header.attempt >= sender_.attempt()) flows_ |= flow_bit(flow);
    greeting_due_ = true;
  }
  if (fresh) heartbeat_at_ = {};
  if (fresh && agreed_) ++state_.reconnects;
  state_.last_heard = now;
  agreed_ = true;
  greeted_ = true;
  memory_due_ = true;
  status_at_ = now;
  asked_at_ = now;
}

void LinkProtocol::accept_fragment(Time now, const MessageHeader& header,
                                   std::span<const std::byte> payload, unsigned flow) {
  using Outcome = ReceiveAssembly::Outcome;
  const Outcome outcome = receiver_.accept(header, payload, flow);
  status_due_ = true;
  if (outcome == Outcome::taken || outcome == Outcome::complete) {
    state_.last_data = now;
    // Four times, because the peer's window may be larger than this end's.
    if (receiver_.waiting_bytes() <= std::max(4 * options_.link.window_bytes, kLeastUntaken))
      return;
    return fail(LinkError(Kind::aborted, fmt::format("{}: {} sends more than its window allows",
                                                     options_.link.name, peer())),
                MessageKind::abort);
  }
  if (outcome == Outcome::early) return;
  ++state_.rejected_fragments;
  if (outcome == Outcome::repeated) return;
  ask_again(now);
  if (outcome == Outcome::corrupt && receiver_.corrupt_in_a_row() >= kCorruptLimit) {
    fail(LinkError(
             Kind::lost,
             fmt::format("{}: frame {} from {} came {} times with intact fragments and a wrong "
                         "hash of the whole; the memory of one of the two hosts is failing",
                         options_.link.name, header.position.sequence, peer(), kCorruptLimit)),
         MessageKind::abort);
  }
}

// The peer knows the end. More final messages would make the two answer each other forever.
void LinkProtocol::accept_final(const MessageHeader& header, std::span<const std::byte> payload) {
  if (error_) {
    peer_knows_ = true;
    final_due_ = false;
    return;
  }
  const std::string name = options_.link.name;
  if (header.kind == MessageKind::bye) {
    fail(LinkError(Kind::lost, fmt::format("{}: {} closed its end", name, peer())),
         MessageKind::bye);
  } else {
    if (payload.empty() || payload[0] > static_cast<std::byte>(Kind::unusable)) return reject();
    const std::string words(reinterpret_cast<const char*>(payload.data()) + 1, payload.size() - 1);
    if (header.kind == MessageKind::refuse) {
      fail(LinkError(static_cast<Kind>(payload[0]), words), MessageKind::bye);
    } else {
      fail(LinkError(Kind::aborted, fmt::format("{}: {} ended the link: {}", name, peer(), words)),
           MessageKind::bye);
    }
  }
  peer_knows_ = true;
  final_due_ = false;
}

void LinkProtocol::fail(const LinkError& cause, MessageKind kind) {
  if (error_) return;
  error_ = cause;
  final_kind_ = kind;
  final_payload_ = kind == MessageKind::bye ? std::vector<std::byte>{} : encode_error(cause);
  final_due_ = true;
}

void LinkProtocol::refuse(const LinkError& words) {
  refusal_words_ = encode_error(words);
  refusal_due_ = true;
}

void LinkProtocol::tick(Time now) {
  const auto unwatched = now - ticked_;
  ticked_ = now;
  if (error_) return;
  // A process that was stopped or starved did not listen, so this time proves nothing about the
  // peer.
  if (unwatched > kSilence / 2) state_.last_heard = std::min(now, state_.last_heard + unwatched);
  give_up_if_due(now);
  if (error_) return;
  if (greeted_) {
    if (now - status_at_ >= kStatusEvery) status_due_ = true;
    if (receiver_.waits_for_attempt() && now - asked_at_ >= kStatusEvery) ask_again(now);
    // A flow that stalls must not hold up the others.
    if (receiver_.holds_early() && now - std::max(asked_at_, state_.last_data) >= kStatusEvery) {
      receiver_.ask_again();
      ask_again(now);
    }
  } else if (path_ && now - greeted_at_ >= kGreetingEvery) {
    greeted_at_ = now;
    greeting_due_ = options_.role == ProtocolOptions::Role::opener;
  }
}

void LinkProtocol::give_up_if_due(Time now) {
  const LinkOptions& link = options_.link;
  const auto quiet = now - state_.last_heard;
  if (!agreed_ && now - created_at_ >= link.connect_limit) {
    const bool opener = options_.role == ProtocolOptions::Role::opener;
    const std::string what = fmt::format(
        "{}: {} {} within {:.0f} s{}", link.name, peer(),
        opener ? "could not be reached" : "has not connected to this process",
        seconds_of(link.connect_limit), problem_.empty() ? "; is it running?" : ": " + problem_);
    // An answerer refuses strangers too, so its refusals say nothing about the peer.
    const bool refused = opener && !problem_.empty();
    fail(LinkError(refused ? Kind::unauthenticated : Kind::lost, what), MessageKind::abort);
  } else if (agreed_ && quiet >= kSilence + link.hold) {
    fail(LinkError(
             Kind::lost,
             fmt::format("{}: nothing received from {} for {:.1f} s; gave up after holding the "
                         "link for {:.0f} s",
                         link.name, peer(), seconds_of(quiet), seconds_of(link.hold))),
         MessageKind::abort);
  }
}

LinkProtocol::Outgoing LinkProtocol::outgoing(MessageKind kind,
                                              std::span<const std::byte> payload) {
  Outgoing message{{}, payload};
  message.header.kind = kind;
  message.header.flows = used_flows();
  message.header.wanted_flows = static_cast<std::uint8_t>(wanted_flows_);
  message.header.generation = options_.generation;
  message.header.run = options_.run;
  message.header.received = receiver_.expected();
  message.header.taken = receiver_.taken();
  message.header.arrived = nanoseconds_until_last_data();
  message.header.attempt = receiver_.asked_attempt();
  state_.sent_bytes += kHeaderBytes + payload.size();
  return message;
}

std::optional<LinkProtocol::Outgoing> LinkProtocol::next_control(Time now) {
  if (std::exchange(refusal_due_, false)) return outgoing(MessageKind::refuse, refusal_words_);
  if (error_) {
    if (!std::exchange(final_due_, false) || peer_knows_) return std::nullopt;
    return outgoing(final_kind_, final_payload_);
  }
  if (std::exchange(greeting_due_, false)) {
    const bool opener = options_.role == ProtocolOptions::Role::opener;
    greeted_at_ = now;
    greeting_words_ = encode_hello(hello_);
    Outgoing message =
        outgoing(opener ? MessageKind::hello : MessageKind::hello_reply, greeting_words_);
    if (!opener) message.header.position.sequence = sender_.attempt();
    return message;
  }
  if (greeted_ && std::exchange(resend_due_, false)) return outgoing(MessageKind::resend);
  if (greeted_ && !memory_payload_.empty() && std::exchange(memory_due_, false)) {
    return outgoing(MessageKind::memory, memory_payload_);
  }
  return std::nullopt;
}

std::optional<LinkProtocol::Outgoing> LinkProtocol::next(Time now, std::uint64_t fragment_limit) {
  if (auto control = next_control(now)) return control;
  if (error_ || !greeted_ || now - state_.last_heard >= kSilence) {
    // On a silent path only heartbeats go, and their answer brings the path back.
    if (error_ || !greeted_ || now - status_at_ < kStatusEvery) return std::nullopt;
  } else if (sender_.has_fragment() && fragment_limit > 0) {
    const SendWindow::Fragment fragment = sender_.next_fragment(fragment_limit);
    Outgoing message = outgoing(MessageKind::fragment, fragment.payload);
    message.header.position = fragment.position;
    message.header.frame_length = fragment.frame_length;
    message.header.frame_hash = fragment.frame_hash;
    message.header.attempt = sender_.attempt();
    if (fragment.again) ++state_.resent_fragments;
    status_due_ = now - status_at_ >= kStatusEvery;
    return message;
  } else if (!status_due_) {
    return std::nullopt;
  }
  status_due_ = false;
  status_at_ = now;
  return status();
}

std::optional<LinkProtocol::Outgoing> LinkProtocol::next_heartbeat(Time now, unsigned flow) {
  if (error_ || !greeted_ || now - heartbeat_at_.at(flow) < kStatusEvery) return std::nullopt;
  if (flows_ == flow_bit(flow)) return std::nullopt;  // next() makes those of a single flow
  heartbeat_at_.at(flow) = now;
  return status();
}

std::uint8_t LinkProtocol::used_flows() const {
  std::uint8_t used = 0;
  for (unsigned flow = 0, count = 0; flow < kMaxFlows && count < wanted_flows(); ++flow) {
    if ((flows_ & flow_bit(flow)) == 0) continue;
    used |= flow_bit(flow);
    ++count;
  }
  return used;
}

LinkProtocol::Outgoing LinkProtocol::status() {
  Outgoing message = outgoing(MessageKind::status);
  message.header.position = sender_.cursor();
  message.header.attempt = sender_.attempt();
  return message;
}

LinkState LinkProtocol::state() const {
  LinkState state = state_;
  state.peer = peer();
  state.connected = connected();
  state.window_bytes = sender_.outstanding_bytes();
  state.awaited_bytes = receiver_.awaited_bytes();
  state.awaited_received = receiver_.expected().offset;
  return state;
}

std::string LinkProtocol::peer() const {
  const std::string& address = options_.peer_address;
  return options_.link.peer.describe() + (address.empty() ? address : " (" + address + ")");
}

}  // namespace strait::net
