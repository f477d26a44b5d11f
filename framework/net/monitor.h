#pragma once

#include <cstdint>
#include <optional>
#include <zmq.hpp>

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

}  // namespace strait::net
