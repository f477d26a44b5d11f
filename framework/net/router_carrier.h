#pragma once

#include <zmq.hpp>

#include "framework/net/carrier.h"
#include "framework/net/endpoint.h"
#include "framework/net/node.h"
#include "framework/net/uplink.h"

namespace strait::net {

// Connections of a listener on which no expected peer has spoken yet. libzmq accepts any peer and
// waits seconds for its key. At most kMost such connections may wait, so that strangers cannot take
// all file descriptors; one more closes the oldest. libzmq owns the connections and may close them
// at any time. A descriptor may then belong to another connection, so the kernel's cookie is
// compared. Used by the net thread only.
class UnprovenConnections {
 public:
  static constexpr std::size_t kMost = 64;

  void accepted(int descriptor);
  void proven(int descriptor);  // an expected peer sent a message on it

 private:
  struct Connection {
    int descriptor = -1;
    std::uint64_t cookie = 0;
  };
  std::deque<Connection> waiting_;
};

// The bound socket of one or many links: a ROUTER that sends to explicit ids only, so that a
// stranger never receives what is meant for a peer.
class RouterCarrier final : public Carrier {
 public:
  // node and uplink, of the net thread, outlive the carrier. Binds at once; LinkError::unusable
  // says why it cannot.
  RouterCarrier(zmq::context_t& context, Uplink& uplink, const NodeOptions& node,
                const BindAddress& address);

  const Endpoint& endpoint() const { return endpoint_; }
  void attach(LinkEnd& end, const LinkOptions& link);

  bool turn(Time now) override;
  void poll_on(std::vector<zmq::pollitem_t>& items) override;
  void detach(LinkEnd& end) override;
  void close() override;

 private:
  struct PeerSlot {  // of one expected link
    LinkEnd* end = nullptr;
    ProcessName peer;
    std::string first_id;                            // the routing id of its flow 0
    std::array<std::string, kMaxFlows> routing_ids;  // by flow; empty before its first message
    unsigned latest = 0;                             // the flow of the latest message
    unsigned next = 0;                               // the flow that is tried first
    std::string address;
    std::optional<zmq::message_t> unsent;
  };

  void follow_events();
  int read(Time now);
  PeerSlot* slot_of(const zmq::message_t& id, const zmq::message_t& body);
  // Whether poll(2) shows when the queue of a blocked link has room again.
  bool is_polled() const;
  bool write(Time now, PeerSlot& slot);
  void write_heartbeats(Time now, PeerSlot& slot);
  bool post(Time now, PeerSlot& slot);
  enum class Posted : std::uint8_t { yes, full, no_path };
  Posted post_on(Time now, PeerSlot& slot, unsigned flow, zmq::message_t& message);

  Uplink& uplink_;
  const NodeOptions& node_;
  std::optional<zmq::socket_t> socket_;
  std::unique_ptr<Monitor> monitor_;
  UnprovenConnections unproven_;
  Endpoint endpoint_;
  std::vector<PeerSlot> slots_;
  std::uint64_t failures_ = 0;
};

}  // namespace strait::net
