#pragma once

#include <zmq.hpp>

#include "framework/net/carrier.h"
#include "framework/net/endpoint.h"
#include "framework/net/node.h"

namespace strait::net {

// The connecting socket of one link: a DEALER whose routing id names this process.
class DealerCarrier final : public Carrier {
 public:
  // node outlives the carrier. peer_key is empty on a plaintext node.
  DealerCarrier(zmq::context_t& context, const NodeOptions& node, Endpoint peer,
                std::string peer_key, LinkEnd& end);

  bool turn(Time now) override;
  void poll_on(std::vector<zmq::pollitem_t>& items) override;
  void detach(LinkEnd& end) override;
  void close() override;

 private:
  void open();
  void renew(Time now);
  void follow_events(Time now);
  void note_failure(const std::string& words);
  bool write(Time now);

  zmq::context_t& context_;
  const NodeOptions& node_;
  const Endpoint peer_;
  const std::string peer_key_;
  LinkEnd* end_;                         // null once detached
  std::optional<zmq::socket_t> socket_;  // none while renewing it fails
  std::unique_ptr<Monitor> monitor_;
  std::optional<zmq::message_t> unsent_;  // composed, but the queue was full
  std::optional<Time> renew_at_;
  std::uint64_t failures_ = 0;
  bool up_ = false;
  Time up_since_{};
};

}  // namespace strait::net
