#pragma once

#include <zmq.hpp>

#include "framework/net/link_end.h"

namespace strait::net {

// The events of one socket. Connections and failed handshakes show nowhere else. Used by the thread
// that owns the socket, and destroyed before the socket.
class Monitor {
 public:
  Monitor(zmq::context_t& context, zmq::socket_t& socket);
  ~Monitor();
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  enum class Event : std::uint8_t {
    accepted,               // a peer connected to a listener; descriptor() is its connection
    up,                     // a connection is up and its handshake is done
    down,                   // a connection is gone
    authentication_failed,  // the peer's gate refused our key, or ours refused the peer's
    protocol_mismatch,      // the peer does not encrypt, or encrypts for another key
    handshake_failed,       // the handshake ended without a reason
  };
  std::optional<Event> next();
  int descriptor() const { return descriptor_; }  // of the last event, where it has one

  zmq::socket_t& events() { return events_; }  // readable when next() has something

 private:
  zmq::socket_t& watched_;
  zmq::socket_t events_;
  int descriptor_ = -1;
};

// By which a listener knows the sender of a message: "1.0.9f3a01bc" is a link of stage 1.0, and
// "1.0.9f3a01bc+2" its flow 2. The last part stands for the link's name.
std::string routing_id(const ProcessName& process, const std::string& link);

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
