#pragma once

#include <zmq.hpp>

#include "framework/net/carrier.h"
#include "framework/net/endpoint.h"
#include "framework/net/node.h"

namespace strait::net {

// The connecting sockets of one link: DEALERs whose routing ids name this process. Each is one flow
// of the link, and the number of flows follows LinkEnd::flows(). Flow 0 is always there.
class DealerCarrier final : public Carrier {
 public:
  // node outlives the carrier. peer_key is empty on a plaintext node.
  DealerCarrier(zmq::context_t& context, const NodeOptions& node, Endpoint peer,
                const LinkOptions& link, LinkEnd& end);

  bool turn(Time now) override;
  void poll_on(std::vector<zmq::pollitem_t>& items) override;
  void detach(LinkEnd& end) override;
  void close() override;

 private:
  struct Flow {
    unsigned number = 0;
    std::optional<zmq::socket_t> socket;  // none while renewing it fails
    std::unique_ptr<Monitor> monitor;
    std::optional<Time> renew_at;
    bool up = false;
    Time up_since{};
    Time heard{};
    Time wanted_at{};
  };

  void open(Flow& flow);
  void renew(Flow& flow, Time now);
  void change_flows(Time now);
  void follow_events(Flow& flow, Time now);
  void renew_if_quiet(Flow& flow, Time now);
  void note_failure(const std::string& words);
  bool write(Time now);
  bool send_unsent();
  bool any_up() const;

  zmq::context_t& context_;
  const NodeOptions& node_;
  const Endpoint peer_;
  const std::string peer_key_;
  const std::string routing_id_;  // of flow 0
  LinkEnd* end_;                  // null once detached
  std::vector<std::unique_ptr<Flow>> flows_;
  std::optional<zmq::message_t> unsent_;  // composed, but the queues were full
  std::size_t next_ = 0;                  // the flow that is tried first
  std::uint64_t failures_ = 0;
};

}  // namespace strait::net
