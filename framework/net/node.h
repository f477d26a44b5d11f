#pragma once

#include <functional>
#include <memory>

#include "framework/net/identity.h"
#include "framework/net/link.h"
#include "framework/net/link_options.h"

namespace strait::net {

class NetThread;

struct NodeOptions {
  ProcessName name;
  RunId run;
  std::uint32_t generation = 1;  // of the run; an older process is fenced out
  CurveKeyPair keys;
  bool plaintext = false;  // no encryption, no proof of identity; private addresses only
  std::function<void(const std::string&)> on_event;  // gets one sentence; called on the net thread
};

// Where to listen. first_port 0 lets the system choose. Otherwise the first free port of the range
// is taken.
struct BindAddress {
  std::string host = "127.0.0.1";  // one specific address, never a wildcard
  std::uint16_t first_port = 0;
  std::uint16_t last_port = 0;  // 0: only first_port
};

// A bound socket. It serves one expected peer (a data link) or many (the control plane). Several
// links of one peer have different names. An unexpected peer is refused before a byte of it is
// read. Destroying the listener closes the port and ends its links; links may be destroyed before
// or after it.
class Listener {
 public:
  Listener() = default;
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  virtual ~Listener() = default;

  virtual std::string endpoint() const = 0;  // "tcp://127.0.0.1:40123", for the peers

  // The end of a link to options.peer, which may connect from now on. Does not wait for the peer:
  // the first send or receive does. One link per peer, name and listener.
  virtual std::unique_ptr<Link> expect(const LinkOptions& options) = 0;
};

// ZeroMQ in one process: the context, the net thread that owns all sockets, and the gate that maps
// keys to processes. Any thread may call. Calls wait for the net thread only.
//
// Destroy links and listeners first. Destroying a link does not flush it: call Link::flush before.
// The peer is told that the link was closed. The destructor joins the net thread and takes at most
// a second.
class Node {
 public:
  explicit Node(NodeOptions options);  // LinkError::unusable if libzmq is older than 4.3.3
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node();

  // LinkError::unusable names the ports that are taken, and their processes where /proc shows them.
  std::unique_ptr<Listener> listen(const BindAddress& address);

  // The other end of Listener::expect. options.peer_public_key proves the listener to us.
  // Returns at once; the link keeps trying for options.connect_limit.
  std::unique_ptr<Link> connect(const std::string& endpoint, const LinkOptions& options);

  const NodeOptions& options() const { return options_; }

 private:
  NodeOptions options_;
  std::shared_ptr<NetThread> thread_;  // links and listeners share it to hand in tasks
};

}  // namespace strait::net
