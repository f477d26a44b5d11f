#include "framework/net/node.h"

#include <fmt/format.h>

#include <random>

#include "framework/net/dealer_carrier.h"
#include "framework/net/link_end.h"
#include "framework/net/net_thread.h"
#include "framework/net/router_carrier.h"
#include "framework/net/socket_settings.h"

namespace strait::net {
namespace {

[[noreturn]] void throw_unusable(const std::string& message) {
  throw LinkError(LinkError::Kind::unusable, message);
}

// For tasks in which libzmq may run out of a resource, such as file descriptors.
void run_task(NetThread& thread, const std::string& where, const std::function<void()>& work) {
  try {
    thread.run(work);
  } catch (const zmq::error_t& error) {
    throw_unusable(fmt::format("cannot open a socket for {}: {}", where, error.what()));
  }
}

// The program's end of a link. It detaches itself on the net thread, which knows it by pointer.
class NodeLink final : public LinkEnd {
 public:
  NodeLink(const ProtocolOptions& options, std::shared_ptr<NetThread> thread)
      : LinkEnd(
            options, [thread] { thread->wake(); }, thread->uplink()),
        thread_(std::move(thread)) {}
  ~NodeLink() override {
    if (!carrier_) return;
    // The net thread may be using this end, so it is removed there, and this destructor waits.
    thread_->run([this] {
      carrier_->detach(*this);
      if (owns_carrier_) thread_->remove(*carrier_);
      if (!allowed_key_.empty()) thread_->gate().forget(allowed_key_);
    });
  }
  NodeLink(const NodeLink&) = delete;
  NodeLink& operator=(const NodeLink&) = delete;

  void own_carrier(std::shared_ptr<Carrier> carrier) {
    carrier_ = std::move(carrier);
    owns_carrier_ = true;
  }
  void share_carrier(std::shared_ptr<Carrier> carrier, std::string allowed_key) {
    carrier_ = std::move(carrier);
    allowed_key_ = std::move(allowed_key);
  }

 private:
  std::shared_ptr<NetThread> thread_;
  std::shared_ptr<Carrier> carrier_;
  bool owns_carrier_ = false;
  std::string allowed_key_;
};

std::uint64_t random_incarnation() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device() | 1;  // never 0, which means unknown
}

ProtocolOptions protocol_options(const NodeOptions& node, const LinkOptions& link,
                                 ProtocolOptions::Role role, std::string peer_address) {
  if (!node.plaintext && !is_curve_key(link.peer_public_key)) {
    throw_unusable(fmt::format("{}: the public key of {} is not a CURVE key (40 characters of Z85)",
                               link.name, link.peer.describe()));
  }
  ProtocolOptions options;
  options.role = role;
  options.name = node.name;
  options.run = node.run;
  options.generation = node.generation;
  options.incarnation = random_incarnation();
  options.peer_address = std::move(peer_address);
  options.link = link;
  options.link.shared_memory = link.shared_memory && !node.plaintext;
  return options;
}

void require_private_if_plain(const NodeOptions& node, const std::string& host) {
  if (!node.plaintext || is_private_host(host)) return;
  throw_unusable(
      fmt::format("plaintext links are for private addresses only, and {} is not one; "
                  "switch encryption on or use a private address",
                  host));
}

class NodeListener final : public Listener {
 public:
  NodeListener(NodeOptions node, std::shared_ptr<NetThread> thread,
               std::shared_ptr<RouterCarrier> carrier)
      : node_(std::move(node)),
        thread_(std::move(thread)),
        carrier_(std::move(carrier)),
        endpoint_(carrier_->endpoint()) {}
  ~NodeListener() override {
    thread_->run([this] {
      carrier_->close();
      thread_->remove(*carrier_);
    });
  }
  NodeListener(const NodeListener&) = delete;
  NodeListener& operator=(const NodeListener&) = delete;

  std::string endpoint() const override { return endpoint_.text(); }

  std::unique_ptr<Link> expect(const LinkOptions& options) override {
    auto link = std::make_unique<NodeLink>(
        protocol_options(node_, options, ProtocolOptions::Role::answerer, {}), thread_);
    thread_->run([&] {
      // Attached before the key is allowed: a peer that is let in must find its link.
      carrier_->attach(*link, options);
      link->share_carrier(carrier_, options.peer_public_key);
      if (!node_.plaintext) thread_->gate().allow(options.peer_public_key, options.peer);
    });
    return link;
  }

 private:
  const NodeOptions node_;
  const std::shared_ptr<NetThread> thread_;
  const std::shared_ptr<RouterCarrier> carrier_;
  const Endpoint endpoint_;
};

}  // namespace

Node::Node(NodeOptions options) : options_(std::move(options)) {
  require_safe_libzmq();
  if (!options_.on_event) options_.on_event = [](const std::string&) {};
  if (!options_.plaintext &&
      (!is_curve_key(options_.keys.public_key) || !is_curve_key(options_.keys.secret_key))) {
    throw_unusable(fmt::format("{} has no CURVE key pair; make one, or ask for plaintext",
                               options_.name.describe()));
  }
  thread_ = std::make_shared<NetThread>(options_);
}

// Links and listeners share the thread and may outlive the node. After stop() nothing runs for
// them.
Node::~Node() { thread_->stop(); }

std::unique_ptr<Listener> Node::listen(const BindAddress& address) {
  require_private_if_plain(options_, address.host);
  std::shared_ptr<RouterCarrier> carrier;
  run_task(*thread_, address.host, [&] {
    carrier =
        std::make_shared<RouterCarrier>(thread_->context(), thread_->uplink(), options_, address);
    thread_->add(carrier);
  });
  return std::make_unique<NodeListener>(options_, thread_, std::move(carrier));
}

std::unique_ptr<Link> Node::connect(const std::string& endpoint, const LinkOptions& options) {
  const auto peer = Endpoint::parse(endpoint);
  if (!peer || peer->port == 0) {
    throw_unusable(fmt::format("{}: '{}' is not an address of the form tcp://ADDRESS:PORT",
                               options.name, endpoint));
  }
  require_private_if_plain(options_, peer->host);
  auto link = std::make_unique<NodeLink>(
      protocol_options(options_, options, ProtocolOptions::Role::opener, peer->host_and_port()),
      thread_);
  run_task(*thread_, endpoint, [&] {
    // Sockets of its own for each link: a DEALER with two peers would deal its messages out in
    // turn.
    // One flow fills a loopback, and a simulated path has its rate per connection.
    if (is_loopback_host(peer->host)) link->limit_flows(1, 1);
    auto carrier =
        std::make_shared<DealerCarrier>(thread_->context(), options_, *peer, options, *link);
    thread_->add(carrier);
    link->own_carrier(std::move(carrier));
  });
  return link;
}

}  // namespace strait::net
