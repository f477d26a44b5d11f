#include "framework/net/dealer_carrier.h"

#include <fmt/format.h>

#include "framework/net/socket_settings.h"

namespace strait::net {
namespace {

// libzmq does not retry after a refused handshake, and a peer may only not expect us yet.
constexpr std::chrono::milliseconds kRenewAfter{200};

// The kernel ends a connection whose peer acknowledges nothing for kSilence. What remains is a
// middlebox that acknowledges and forwards nothing: a new connection may take another route.
constexpr std::chrono::milliseconds kRenewWhenQuietFor = 2 * kSilence;

}  // namespace

DealerCarrier::DealerCarrier(zmq::context_t& context, const NodeOptions& node, Endpoint peer,
                             std::string peer_key, LinkEnd& end)
    : context_(context),
      node_(node),
      peer_(std::move(peer)),
      peer_key_(std::move(peer_key)),
      end_(&end) {
  open();
}

void DealerCarrier::open() {
  monitor_.reset();
  unsent_.reset();
  socket_.emplace(context_, zmq::socket_type::dealer);
  apply_link_settings(*socket_, peer_.host);
  socket_->set(zmq::sockopt::routing_id, fmt::format("{}.{}", node_.name.text(), node_.restarts));
  if (!node_.plaintext) call_with_curve(*socket_, node_.keys, peer_key_);
  monitor_ = std::make_unique<Monitor>(context_, *socket_);
  try {
    socket_->connect(peer_.text());
  } catch (const zmq::error_t& error) {
    throw LinkError(LinkError::Kind::unusable,
                    fmt::format("cannot connect to {}: {}; expected tcp://ADDRESS:PORT with an "
                                "address that this machine can reach",
                                peer_.text(), error.what()));
  }
}

bool DealerCarrier::turn(Time now) {
  if (end_ == nullptr) return false;
  follow_events(now);
  if (renew_at_ && now >= *renew_at_) renew(now);
  if (!socket_) {
    end_->tick(now);
    return false;
  }
  int reads = 0;
  for (zmq::message_t message;
       reads < kReadsPerTurn && socket_->recv(message, zmq::recv_flags::dontwait); ++reads) {
    // Each of our messages is one part; this protocol never wrote a message of several parts.
    if (!message.more()) end_->arrived(now, message);
  }
  end_->tick(now);
  // Checked after reading: messages that came while this process stood still are read by now, and
  // that time is discounted.
  if (up_ && now - std::max(up_since_, end_->last_heard()) >= kRenewWhenQuietFor) renew_at_ = now;
  return write(now) || reads == kReadsPerTurn;
}

// A new socket is needed: the old one would first send what it still queues for the old connection.
void DealerCarrier::renew(Time now) {
  renew_at_.reset();
  if (std::exchange(up_, false)) end_->path_down(now);
  try {
    open();
  } catch (const std::exception& error) {
    // It worked before, so the cause passes: too many open files, or a name that does not resolve
    // now. The link allows for this as long as its path may be down.
    monitor_.reset();
    socket_.reset();
    note_failure(error.what());
    renew_at_ = now + kRenewAfter;
  }
}

bool DealerCarrier::write(Time now) {
  for (int writes = 0; writes < kWritesPerTurn; ++writes) {
    if (!unsent_) {
      zmq::message_t message;
      if (!end_->compose(now, message)) return false;
      unsent_ = std::move(message);
    }
    // ZeroMQ's queue is full. The message is kept, because compose() has already advanced the
    // window.
    if (!socket_->send(*unsent_, zmq::send_flags::dontwait)) return false;
    unsent_.reset();
  }
  return true;
}

void DealerCarrier::follow_events(Time now) {
  if (!monitor_) return;
  while (const auto event = monitor_->next()) {
    switch (*event) {
      case Monitor::Event::accepted:
        break;  // only on listeners
      case Monitor::Event::up:
        up_ = true;
        up_since_ = now;
        renew_at_.reset();
        end_->path_up(now);
        break;
      case Monitor::Event::down:
        if (!std::exchange(up_, false)) break;
        end_->path_down(now);
        renew_at_ = now;
        return;  // later events belong to the socket that is replaced
      case Monitor::Event::authentication_failed:
        note_failure("it does not know our key, or does not expect us yet");
        // libzmq never retries a connection whose handshake was refused.
        renew_at_ = now + kRenewAfter;
        break;
      case Monitor::Event::protocol_mismatch:
        note_failure("it does not encrypt as we do; is it a process of this run?");
        renew_at_ = now + kRenewAfter;
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
  if (end_ == nullptr || !socket_) return;
  items.push_back(poll_item(*socket_, unsent_.has_value()));
  items.push_back(poll_item(monitor_->events(), false));
}

void DealerCarrier::detach(LinkEnd& end) {
  if (end_ == &end) close();
}

void DealerCarrier::close() {
  if (end_ == nullptr) return;
  end_->close();
  // On a path that is down the peer cannot receive the final message; waiting for it would only
  // delay the exit.
  if (up_) {
    const auto now = std::chrono::steady_clock::now();
    write(now);
    if (unsent_ && wait_for_room(*socket_)) write(now);
    socket_->set(zmq::sockopt::linger, kLingerMs);
  }
  end_ = nullptr;
  monitor_.reset();
  socket_.reset();
}

}  // namespace strait::net
