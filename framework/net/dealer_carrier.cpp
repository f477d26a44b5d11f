#include "framework/net/dealer_carrier.h"

#include <fmt/format.h>

#include <algorithm>

#include "framework/net/socket_settings.h"

namespace strait::net {
namespace {

// libzmq does not retry after a refused handshake, and a peer may only not expect us yet.
constexpr std::chrono::milliseconds kRenewAfter{200};

// The kernel ends a connection whose peer acknowledges nothing for kSilence. What remains is a
// middlebox that acknowledges and forwards nothing: a new connection may take another route.
constexpr std::chrono::milliseconds kRenewWhenQuietFor = 2 * kSilence;

// By then nothing of what an unused flow carried is on its way.
constexpr std::chrono::seconds kCloseUnusedAfter{10};

}  // namespace

DealerCarrier::DealerCarrier(zmq::context_t& context, const NodeOptions& node, Endpoint peer,
                             const LinkOptions& link, LinkEnd& end)
    : context_(context),
      node_(node),
      peer_(std::move(peer)),
      peer_key_(link.peer_public_key),
      routing_id_(routing_id(node.name, link.name)),
      end_(&end) {
  flows_.push_back(std::make_unique<Flow>());
  open(*flows_.front());
}

void DealerCarrier::open(Flow& flow) {
  flow.monitor.reset();
  zmq::socket_t& socket = flow.socket.emplace(context_, zmq::socket_type::dealer);
  apply_link_settings(socket, peer_.host);
  socket.set(zmq::sockopt::routing_id,
             flow.number == 0 ? routing_id_ : fmt::format("{}+{}", routing_id_, flow.number));
  if (!node_.plaintext) call_with_curve(socket, node_.keys, peer_key_);
  flow.monitor = std::make_unique<Monitor>(context_, socket);
  try {
    socket.connect(peer_.text());
  } catch (const zmq::error_t& error) {
    throw LinkError(LinkError::Kind::unusable,
                    fmt::format("cannot connect to {}: {}; expected tcp://ADDRESS:PORT with an "
                                "address that this machine can reach",
                                peer_.text(), error.what()));
  }
}

bool DealerCarrier::turn(Time now) {
  if (end_ == nullptr) return false;
  change_flows(now);
  bool more = false;
  for (const auto& flow : flows_) {
    follow_events(*flow, now);
    if (flow->renew_at && now >= *flow->renew_at) renew(*flow, now);
    if (!flow->socket) continue;
    int reads = 0;
    for (zmq::message_t message;
         reads < kReadsPerTurn && flow->socket->recv(message, zmq::recv_flags::dontwait); ++reads) {
      flow->heard = now;
      // Each of our messages is one part; this protocol never wrote a message of several parts.
      if (!message.more()) end_->arrived(now, message, flow->number);
    }
    more = more || reads == kReadsPerTurn;
  }
  end_->tick(now);
  // Checked after reading: messages that came while this process stood still are read by now, and
  // that time is discounted.
  for (const auto& flow : flows_) renew_if_quiet(*flow, now);
  return write(now) || more;
}

void DealerCarrier::renew_if_quiet(Flow& flow, Time now) {
  // Over several flows, each has its own heartbeats.
  const Time heard = flows_.size() == 1 ? end_->last_heard() : flow.heard;
  if (flow.up && now - std::max(flow.up_since, heard) >= kRenewWhenQuietFor) flow.renew_at = now;
}

void DealerCarrier::change_flows(Time now) {
  const LinkEnd::Flows flows = end_->flows();
  for (const auto& flow : flows_) {
    if (flow->number < flows.wanted) flow->wanted_at = now;
  }
  if (flows_.size() < flows.wanted && flows_.front()->up) {
    const auto& flow = flows_.emplace_back(std::make_unique<Flow>());
    flow->number = static_cast<unsigned>(flows_.size()) - 1;
    flow->wanted_at = now;
    flow->renew_at = now;  // opens it
  } else if (now - flows_.back()->wanted_at >= kCloseUnusedAfter && flows_.size() > 1) {
    end_->close_flow(flows_.back()->number);
    flows_.pop_back();
  }
}

// A new socket is needed: the old one would first send what it still queues for the old connection.
void DealerCarrier::renew(Flow& flow, Time now) {
  flow.renew_at.reset();
  if (std::exchange(flow.up, false)) end_->path_down(now, flow.number);
  if (flows_.size() == 1) unsent_.reset();
  try {
    open(flow);
  } catch (const std::exception& error) {
    // It worked before, so the cause passes: too many open files, or a name that does not resolve
    // now. The link allows for this as long as its path may be down.
    flow.monitor.reset();
    flow.socket.reset();
    note_failure(error.what());
    flow.renew_at = now + kRenewAfter;
  }
}

bool DealerCarrier::write(Time now) {
  for (const auto& flow : flows_) {
    zmq::message_t message;
    if (!flow->up || !end_->compose_heartbeat(now, flow->number, message)) continue;
    // A full queue shows that the flow lives as well as a heartbeat does.
    static_cast<void>(flow->socket->send(message, zmq::send_flags::dontwait));
  }
  for (int writes = 0; writes < kWritesPerTurn; ++writes) {
    if (!unsent_) {
      zmq::message_t message;
      if (!end_->compose(now, message)) return false;
      unsent_ = std::move(message);
    }
    // The message is kept, because compose() has already advanced the window.
    if (!send_unsent()) return false;
    unsent_.reset();
  }
  return true;
}

// To the next flow whose queue has room.
bool DealerCarrier::send_unsent() {
  const LinkEnd::Flows flows = end_->flows();
  for (std::size_t tried = 0; tried < flows_.size(); ++tried) {
    Flow& flow = *flows_[next_++ % flows_.size()];
    // Before the path is up, what is due is for flow 0.
    const bool used = flows.used != 0 ? flows.has(flow.number) : flow.number == 0;
    if (used && flow.socket && flow.socket->send(*unsent_, zmq::send_flags::dontwait)) return true;
  }
  return false;
}

bool DealerCarrier::any_up() const {
  return std::ranges::any_of(flows_, [](const auto& flow) { return flow->up; });
}

void DealerCarrier::follow_events(Flow& flow, Time now) {
  if (!flow.monitor) return;
  while (const auto event = flow.monitor->next()) {
    switch (*event) {
      case Monitor::Event::accepted:
        break;  // only on listeners
      case Monitor::Event::up:
        flow.up = true;
        flow.up_since = now;
        flow.renew_at.reset();
        end_->path_up(now, flow.number);
        break;
      case Monitor::Event::down:
        if (!std::exchange(flow.up, false)) break;
        end_->path_down(now, flow.number);
        flow.renew_at = now;
        return;  // later events belong to the socket that is replaced
      case Monitor::Event::authentication_failed:
        note_failure("it does not know our key, or does not expect us yet");
        // libzmq never retries a connection whose handshake was refused.
        flow.renew_at = now + kRenewAfter;
        break;
      case Monitor::Event::protocol_mismatch:
        note_failure("it does not encrypt as we do; is it a process of this run?");
        flow.renew_at = now + kRenewAfter;
        break;
      case Monitor::Event::handshake_failed:
        note_failure("the connection stands, but the handshake breaks off; are the keys right?");
        break;
    }
  }
}

void DealerCarrier::note_failure(const std::string& message) {
  ++failures_;
  end_->record_problem(message);
  // Every retry fails in the same way, so one sentence is enough.
  if (failures_ == 1) node_.on_event(fmt::format("{}: {}", peer_.host_and_port(), message));
}

void DealerCarrier::poll_on(std::vector<zmq::pollitem_t>& items) {
  if (end_ == nullptr) return;
  const LinkEnd::Flows flows = end_->flows();
  for (const auto& flow : flows_) {
    if (!flow->socket) continue;
    const bool used = flows.used == 0 || flows.has(flow->number);
    items.push_back(poll_item(*flow->socket, unsent_.has_value() && used));
    items.push_back(poll_item(flow->monitor->events(), false));
  }
}

void DealerCarrier::detach(LinkEnd& end) {
  if (end_ == &end) close();
}

void DealerCarrier::close() {
  if (end_ == nullptr) return;
  end_->close();
  // On a path that is down the peer cannot receive the final message; waiting for it would only
  // delay the exit.
  if (any_up()) {
    const auto now = std::chrono::steady_clock::now();
    write(now);
    const auto& up = *std::ranges::find_if(flows_, [](const auto& flow) { return flow->up; });
    if (unsent_ && wait_for_room(*up->socket)) write(now);
    for (const auto& flow : flows_) {
      if (flow->up) flow->socket->set(zmq::sockopt::linger, kLingerMs);
    }
  }
  end_ = nullptr;
  flows_.clear();
}

}  // namespace strait::net
