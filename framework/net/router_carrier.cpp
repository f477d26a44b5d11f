#include "framework/net/router_carrier.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include "framework/net/socket_settings.h"

namespace strait::net {
namespace {

// A queue of a few fragments runs empty within this time on a path of a gigabit.
constexpr std::chrono::milliseconds kRetryFull{2};

constexpr const char* kUserId = "User-Id";
constexpr const char* kPeerAddress = "Peer-Address";

// A property that the gate set for the sender of the message; empty on a plaintext socket.
std::string_view property(const zmq::message_t& message, const char* name) {
  const char* value = zmq_msg_gets(message.handle(), name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

// See routing_id() in carrier.h.
std::string_view name_in(std::string_view id) { return id.substr(0, id.rfind('.')); }
std::string_view first_in(std::string_view id) { return id.substr(0, id.rfind('+')); }

// kMaxFlows: none that this protocol has.
unsigned flow_in(std::string_view routing_id) {
  const std::size_t plus = routing_id.rfind('+');
  if (plus == std::string_view::npos) return 0;
  const std::string_view digits = routing_id.substr(plus + 1);
  if (digits.size() != 1 || digits[0] < '0' || digits[0] > '9') return kMaxFlows;
  return std::min(static_cast<unsigned>(digits[0] - '0'), kMaxFlows);
}

[[noreturn]] void throw_unbindable(const std::string& words) {
  throw LinkError(LinkError::Kind::unusable, words);
}

[[noreturn]] void throw_all_taken(const BindAddress& address, std::uint16_t last) {
  const auto holder = port_holder(address.first_port);
  const std::string by = holder ? "held by " + *holder : "held by another process";
  if (last == address.first_port) {
    throw_unbindable(fmt::format("port {} on {} is taken, {}; free it or choose another port", last,
                                 address.host, by));
  }
  throw_unbindable(
      fmt::format("all ports {}-{} on {} are taken, {} {}; free one or widen the range",
                  address.first_port, last, address.host, address.first_port, by));
}

// Binds to the first free port of the address and says which it is. LinkError::unusable names the
// ports that are taken and the processes that hold them, or why the address cannot be used.
Endpoint bind_socket(zmq::socket_t& socket, const BindAddress& address) {
  if (address.host.empty() || address.host == "*" || address.host == "0.0.0.0" ||
      address.host == "::") {
    throw_unbindable(
        fmt::format("cannot listen on '{}': name the one address that the peers use, so "
                    "that the port is not open to other networks",
                    address.host));
  }
  if (address.last_port != 0 && address.last_port < address.first_port) {
    throw_unbindable(
        fmt::format("ports {}-{} are not a valid range", address.first_port, address.last_port));
  }
  const std::uint16_t last = std::max(address.first_port, address.last_port);
  // One more bit than a port, so that the loop ends when last is 65535.
  for (std::uint32_t port = address.first_port; port <= last; ++port) {
    const Endpoint wanted{address.host, static_cast<std::uint16_t>(port)};
    try {
      socket.bind(wanted.text());
    } catch (const zmq::error_t& error) {
      if (error.num() == EADDRINUSE) continue;
      throw_unbindable(fmt::format("cannot listen on {}: {}; is it an address of this machine?",
                                   wanted.host_and_port(), error.what()));
    }
    // Port 0 lets the system choose; only libzmq knows the result.
    const auto bound = Endpoint::parse(socket.get(zmq::sockopt::last_endpoint));
    if (!bound)
      throw_unbindable(fmt::format("libzmq names no port for {}", wanted.host_and_port()));
    return {address.host, bound->port};
  }
  throw_all_taken(address, last);
}

}  // namespace

void UnprovenConnections::accepted(int descriptor) {
  const std::uint64_t cookie = socket_cookie(descriptor);
  if (cookie == 0) return;  // already closed
  waiting_.push_back({descriptor, cookie});
  if (waiting_.size() <= kMost) return;
  const Connection oldest = waiting_.front();
  waiting_.pop_front();
  // libzmq sees the end of the stream and closes the connection.
  if (socket_cookie(oldest.descriptor) == oldest.cookie) ::shutdown(oldest.descriptor, SHUT_RDWR);
}

void UnprovenConnections::proven(int descriptor) {
  const auto found = std::ranges::find(waiting_, descriptor, &Connection::descriptor);
  if (found != waiting_.end()) waiting_.erase(found);
}

RouterCarrier::RouterCarrier(zmq::context_t& context, Uplink& uplink, const NodeOptions& node,
                             const BindAddress& address)
    : uplink_(uplink), node_(node) {
  socket_.emplace(context, zmq::socket_type::router);
  apply_link_settings(*socket_, address.host);
  // mandatory: an unknown peer is an error instead of a silent loss. handover: a restarted peer
  // takes the id from its dead connection.
  socket_->set(zmq::sockopt::router_mandatory, true);
  socket_->set(zmq::sockopt::router_handover, true);
  if (!node.plaintext) serve_curve(*socket_, node.keys, "run-" + node.run.hex());
  monitor_ = std::make_unique<Monitor>(context, *socket_);
  endpoint_ = bind_socket(*socket_, address);
}

void RouterCarrier::attach(LinkEnd& end, const LinkOptions& link) {
  std::string id = routing_id(link.peer, link.name);
  // Two links of one name to one peer could not be told apart on this socket.
  if (std::ranges::find(slots_, id, &PeerSlot::first_id) != slots_.end()) {
    throw LinkError(LinkError::Kind::unusable,
                    fmt::format("{}: {} is already expected at {}; one link of a name per listener",
                                link.name, link.peer.describe(), endpoint_.host_and_port()));
  }
  slots_.emplace_back();
  slots_.back().end = &end;
  slots_.back().peer = link.peer;
  slots_.back().first_id = std::move(id);
}

bool RouterCarrier::turn(Time now) {
  if (!socket_) return false;
  follow_events();
  bool more = read(now) == kReadsPerTurn;
  for (PeerSlot& slot : slots_) {
    slot.end->tick(now);
    more = write(now, slot) || more;
  }
  return more;
}

int RouterCarrier::read(Time now) {
  int reads = 0;
  for (zmq::message_t id; reads < kReadsPerTurn && socket_->recv(id, zmq::recv_flags::dontwait);
       ++reads) {
    zmq::message_t body;
    bool parts = id.more();
    int count = 0;
    for (; parts; parts = body.more(), ++count) {
      if (!socket_->recv(body, zmq::recv_flags::dontwait)) break;
    }
    // Messages of several parts were not written by this protocol.
    if (count != 1) continue;
    PeerSlot* const slot = slot_of(id, body);
    if (slot == nullptr) continue;
    unproven_.proven(zmq_msg_get(body.handle(), ZMQ_SRCFD));
    slot->end->arrived(now, body, slot->latest);
  }
  return reads;
}

RouterCarrier::PeerSlot* RouterCarrier::slot_of(const zmq::message_t& id,
                                                const zmq::message_t& body) {
  const std::string sender = id.to_string();
  const std::string name(name_in(sender));
  const unsigned flow = flow_in(sender);
  if (flow == kMaxFlows) return nullptr;
  // A peer that proved its own key could still use another process's id.
  if (!node_.plaintext && property(body, kUserId) != name) {
    node_.on_event(fmt::format("{}: dropped a message of {} under the name {}",
                               endpoint_.host_and_port(), property(body, kUserId), name));
    return nullptr;
  }
  for (PeerSlot& slot : slots_) {
    if (slot.first_id != first_in(sender)) continue;
    slot.routing_ids.at(flow) = sender;
    slot.latest = flow;
    const std::string_view address = property(body, kPeerAddress);
    if (slot.address != address) {
      slot.address = address;
      slot.end->set_peer_address(slot.address);
    }
    return &slot;
  }
  return nullptr;
}

bool RouterCarrier::write(Time now, PeerSlot& slot) {
  write_heartbeats(now, slot);
  for (int writes = 0; writes < kWritesPerTurn; ++writes) {
    if (!slot.unsent) {
      zmq::message_t message;
      if (!slot.end->compose(now, message)) return false;
      slot.unsent = std::move(message);
    }
    if (post(now, slot)) continue;
    if (!is_polled()) uplink_.ask_again_at(now + kRetryFull);
    return false;
  }
  return true;
}

void RouterCarrier::write_heartbeats(Time now, PeerSlot& slot) {
  const std::uint8_t open = slot.end->flows().open;
  for (unsigned flow = 0; flow < kMaxFlows; ++flow) {
    zmq::message_t message;
    if ((open >> flow & 1U) == 0 || !slot.end->compose_heartbeat(now, flow, message)) continue;
    // A full queue shows that the flow lives as well as a heartbeat does.
    post_on(now, slot, flow, message);
  }
}

// To the next flow whose queue has room. False: none has.
bool RouterCarrier::post(Time now, PeerSlot& slot) {
  const LinkEnd::Flows flows = slot.end->flows();
  bool full = false;
  bool sent = false;
  for (unsigned tried = 0; tried < kMaxFlows && !sent; ++tried) {
    const unsigned flow = slot.next++ % kMaxFlows;
    // Without a path, what is due goes over the flow of the peer's latest message.
    if (flows.used != 0 ? !flows.has(flow) : flow != slot.latest) continue;
    const Posted posted = post_on(now, slot, flow, *slot.unsent);
    full = full || posted == Posted::full;
    sent = posted == Posted::yes;
  }
  if (full && !sent) return false;
  slot.unsent.reset();
  return true;
}

RouterCarrier::Posted RouterCarrier::post_on(Time now, PeerSlot& slot, unsigned flow,
                                             zmq::message_t& message) {
  try {
    zmq::message_t id(slot.routing_ids.at(flow));
    const auto flags = zmq::send_flags::dontwait | zmq::send_flags::sndmore;
    if (!socket_->send(id, flags)) return Posted::full;
    // A queue that took the id also takes the body.
    socket_->send(message, zmq::send_flags::dontwait);
    return Posted::yes;
  } catch (const zmq::error_t& error) {
    if (error.num() == EHOSTUNREACH) {
      slot.end->path_down(now, flow);
    } else {  // for example, too little memory
      slot.end->abort(LinkError(LinkError::Kind::lost,
                                fmt::format("cannot send to {} at {}: {}", slot.peer.describe(),
                                            endpoint_.host_and_port(), error.what())));
    }
    return Posted::no_path;
  }
}

void RouterCarrier::follow_events() {
  while (const auto event = monitor_->next()) {
    if (*event == Monitor::Event::accepted) {
      unproven_.accepted(monitor_->descriptor());
      continue;
    }
    if (*event == Monitor::Event::up || *event == Monitor::Event::down) continue;
    ++failures_;
    const std::string message = fmt::format("{} connections at {} failed authentication", failures_,
                                            endpoint_.host_and_port());
    for (PeerSlot& slot : slots_) slot.end->record_problem(message);
    if (failures_ == 1) node_.on_event(message);
  }
}

// With several peers, or a flow that is open and not used, the socket is writable as soon as one of
// them is, so polling for it would spin.
bool RouterCarrier::is_polled() const {
  if (slots_.size() != 1) return false;
  const LinkEnd::Flows flows = slots_.front().end->flows();
  return flows.open == flows.used;
}

void RouterCarrier::poll_on(std::vector<zmq::pollitem_t>& items) {
  if (!socket_) return;
  items.push_back(poll_item(*socket_, is_polled() && slots_.front().unsent.has_value()));
  items.push_back(poll_item(monitor_->events(), false));
}

void RouterCarrier::detach(LinkEnd& end) {
  const auto found = std::find_if(slots_.begin(), slots_.end(),
                                  [&](const PeerSlot& slot) { return slot.end == &end; });
  if (found == slots_.end()) return;
  end.close();
  const auto now = std::chrono::steady_clock::now();
  write(now, *found);
  if (found->unsent && wait_for_room(*socket_)) write(now, *found);
  slots_.erase(found);
}

void RouterCarrier::close() {
  if (!socket_) return;
  while (!slots_.empty()) detach(*slots_.back().end);
  socket_->set(zmq::sockopt::linger, kLingerMs);
  monitor_.reset();
  socket_.reset();
}

}  // namespace strait::net
