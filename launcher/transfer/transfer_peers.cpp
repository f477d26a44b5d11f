#include "launcher/transfer/transfer_peers.h"

#include <fmt/format.h>

#include <utility>

#include "launcher/hosts/agent_message.h"

namespace strait::transfer {

net::LinkOptions transfer_link(const net::ProcessName& listens, const net::ProcessName& dials,
                               const net::ProcessName& peer, const std::string& peer_key,
                               std::chrono::seconds hold) {
  const std::string name = listens == net::ProcessName::coordinator()
                               ? hosts::kTransferService
                               : fmt::format("{} {}", hosts::kTransferService, listens.text());
  net::LinkOptions options = hosts::service_link(name, dials, peer, peer_key, hold);
  // Small link chunks, so that a slow path shows progress within the heartbeat limit.
  options.fragment_bytes = std::uint64_t{128} << 10;
  // On the hosts, stages send activations while checkpoints are downloaded. The launcher has
  // nothing more urgent to send.
  const bool at_launcher = listens == net::ProcessName::coordinator() && peer == dials;
  options.priority = at_launcher ? net::Priority::foreground : net::Priority::background;
  return options;
}

TransferPeers::~TransferPeers() {
  tasks_.close();  // first: a receiver may wait for room in the queue
  const net::LinkError cause(net::LinkError::Kind::aborted, "the transfer agent is shutting down");
  for (const auto& peer : peers_) peer->link->abort(cause);
  for (const auto& peer : peers_) peer->receiver.join();
}

std::size_t TransferPeers::add(const net::ProcessName& name, const std::string& host,
                               std::unique_ptr<net::Link> link) {
  remove(name, "replaced by a new connection");
  const std::size_t number = peers_.size();
  peers_.push_back(std::make_unique<Peer>());
  Peer& peer = *peers_.back();
  peer.name = name;
  peer.host = host;
  peer.link = std::move(link);
  // The thread gets the link itself: peers_ may be reallocated while it runs.
  peer.receiver = std::thread([this, number, &of = *peer.link] { receive(number, of); });
  return number;
}

void TransferPeers::remove(const net::ProcessName& name, const std::string& cause) {
  if (const auto peer = find(name)) drop(*peer, cause);
}

void TransferPeers::drop(std::size_t number, const std::string& cause) {
  Peer& peer = *peers_.at(number);
  if (!peer.connected) return;
  peer.connected = false;
  peer.subscriptions.clear();
  peer.link->abort(net::LinkError(net::LinkError::Kind::aborted, cause));
  handlers_.disconnected(number, fmt::format("{}: {}", peer.host, cause));
}

void TransferPeers::send_frame(std::size_t number, net::Frame frame) {
  Peer& peer = *peers_.at(number);
  if (!peer.connected) return;
  try {
    peer.link->send(std::move(frame));
  } catch (const net::LinkError&) {
    // The receiving thread gets the same error and reports the disconnection.
  }
}

std::optional<std::size_t> TransferPeers::find(const net::ProcessName& name) const {
  for (std::size_t number = 0; number < peers_.size(); ++number) {
    if (peers_[number]->connected && peers_[number]->name == name) return number;
  }
  return std::nullopt;
}

void TransferPeers::subscribe(std::size_t number, const std::string& id) {
  std::set<std::string>& subscriptions = peers_.at(number)->subscriptions;
  if (subscriptions.size() >= kMostSubscriptions) {
    throw base::MessageError("protocol error: too many subscriptions");
  }
  subscriptions.insert(id);
}

void TransferPeers::unsubscribe(std::size_t number, const std::string& id) {
  peers_.at(number)->subscriptions.erase(id);
}

void TransferPeers::unsubscribe_all(const std::string& id) {
  for (const auto& peer : peers_) peer->subscriptions.erase(id);
}

void TransferPeers::announce(const std::string& id, const std::vector<ChunkRun>& runs) {
  if (runs.empty()) return;
  for (std::size_t number = 0; number < peers_.size(); ++number) {
    if (peers_[number]->subscriptions.contains(id)) send(number, message::Have{id, runs});
  }
}

void TransferPeers::receive(std::size_t number, net::Link& link) {
  std::string cause;
  try {
    while (true) {
      const auto message =
          std::make_shared<const message::Message>(message::parse_message(link.receive()));
      tasks_.add_when_not_full([this, number, message] {
        if (!peers_[number]->connected) return;
        try {
          handlers_.received(number, *message);
        } catch (const base::MessageError& error) {
          drop(number, error.what());
        }
      });
    }
  } catch (const std::exception& error) {
    cause = error.what();
  }
  tasks_.add([this, number, cause] { drop(number, cause); });
}

}  // namespace strait::transfer
