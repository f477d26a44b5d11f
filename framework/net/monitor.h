#pragma once

#include <cstdint>
#include <optional>
#include <zmq.hpp>

namespace strait::net {

// The event stream of one socket: the only place where connections and failed handshakes show.
// Used on the thread that owns the socket, and destroyed before it.
class Monitor {
 public:
  Monitor(zmq::context_t& context, zmq::socket_t& socket);
  ~Monitor();
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  enum class Event : std::uint8_t {
    accepted,               // a peer has connected to a listener; descriptor() is the connection
    up,                     // a connection and its handshake stand
    down,                   // a connection is gone
    authentication_failed,  // the other side's gate refused our key, or ours refused theirs
    protocol_mismatch,      // the other side does not encrypt, or encrypts for another key
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

}  // namespace strait::net
