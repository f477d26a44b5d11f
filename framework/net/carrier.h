#pragma once

#include <optional>
#include <vector>
#include <zmq.hpp>

#include "framework/net/link_end.h"

namespace strait::net {

// One socket and the link ends that use it. Used by the net thread only.
class Carrier {
 public:
  using Time = LinkEnd::Time;

  Carrier() = default;
  Carrier(const Carrier&) = delete;
  Carrier& operator=(const Carrier&) = delete;
  virtual ~Carrier() = default;

  // One round: take what has arrived, let time pass, send what is due. Never blocks. True: there is
  // more to do at once.
  virtual bool turn(Time now) = 0;
  virtual void poll_on(std::vector<zmq::pollitem_t>& items) = 0;

  // The end is about to be destroyed: its peer gets its final message.
  virtual void detach(LinkEnd& end) = 0;
  // No more turns. Ends that are still here die with the socket.
  virtual void close() = 0;
};

// Bounds on one round, so that no link starves the others.
inline constexpr int kReadsPerTurn = 64;
inline constexpr int kWritesPerTurn = 16;

// How long a closed socket goes on sending to a peer that may be gone.
inline constexpr int kLingerMs = 1000;

inline zmq::pollitem_t poll_item(zmq::socket_t& socket, bool writable) {
  const int events = writable ? ZMQ_POLLIN | ZMQ_POLLOUT : ZMQ_POLLIN;
  return {socket.handle(), 0, static_cast<short>(events), 0};
}

// Waits a short time, once per link, for room for a closing message whose queue is full of
// fragments. Raising the queue's limit instead crashes libzmq 4.3.4 when it meets a dying
// connection.
inline bool wait_for_room(zmq::socket_t& socket) {
  zmq::pollitem_t item{socket.handle(), 0, ZMQ_POLLOUT, 0};
  constexpr long kMomentMs = 300;
  return zmq_poll(&item, 1, kMomentMs) > 0;
}

}  // namespace strait::net
