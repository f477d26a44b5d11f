#include "launcher/transfer/transfer_peers.h"

#include <fmt/format.h>

#include <utility>

#include "launcher/hosts/service_link.h"

namespace strait::transfer {

net::LinkOptions transfer_link(const net::ProcessName& listens, const net::ProcessName& dials,
                               const net::ProcessName& peer, const std::string& peer_key,
                               std::chrono::seconds hold) {
  const std::string name = listens == net::ProcessName::coordinator()
                               ? hosts::kShipService
                               : fmt::format("{} {}", hosts::kShipService, listens.text());
  net::LinkOptions options = hosts::service_link(name, dials, peer, peer_key, hold);
  // Small link chunks, so that a slow path still shows progress within the heartbeat limit.
  options.chunk_bytes = std::uint64_t{128} << 10;
  // On the hosts, stages send activations while checkpoints travel. The launcher has nothing more
  // urgent to send.
  const bool at_launcher = listens == net::ProcessName::coordinator() && peer == dials;
  options.priority = at_launcher ? net::Priority::foreground : net::Priority::background;
  return options;
}

TransferPeers::~TransferPeers() {
  inbox_.close();
  const net::LinkError cause(net::LinkError::Kind::aborted, "nothing more is shipped here");
  for (const auto& peer : peers_) peer->link->abort(cause);
  for (const auto& peer : peers_) peer->listener.join();
}

std::size_t TransferPeers::join(const net::ProcessName& name, const std::string& host,
                            std::unique_ptr<net::Link> link) {
  if (const auto before = called(name)) drop(*before, "it came again");
  const std::size_t number = peers_.size();
  peers_.push_back(std::make_unique<Peer>());
  Peer& peer = *peers_.back();
  peer.name = name;
  peer.host = host;
  peer.link = std::move(link);
  peer.listener = std::thread([this, number, &of = *peer.link] { listen(number, of); });
  return number;
}

void TransferPeers::drop(std::size_t number, const std::string& words) {
  Peer& peer = *peers_.at(number);
  if (!peer.there) return;
  peer.there = false;
  peer.sought.clear();
  peer.link->abort(net::LinkError(net::LinkError::Kind::aborted, words));
  ears_.gone(number, fmt::format("{}: {}", peer.host, words));
}

void TransferPeers::send(std::size_t number, net::Frame frame) {
  Peer& peer = *peers_.at(number);
  if (!peer.there) return;
  try {
    peer.link->send(std::move(frame));
  } catch (const net::LinkError&) {
    // Its listener hears the same, and tells everybody that it is gone.
  }
}

std::optional<std::size_t> TransferPeers::called(const net::ProcessName& name) const {
  for (std::size_t number = 0; number < peers_.size(); ++number) {
    if (peers_[number]->there && peers_[number]->name == name) return number;
  }
  return std::nullopt;
}

void TransferPeers::seeks(std::size_t number, const std::string& id) {
  std::set<std::string>& sought = peers_.at(number)->sought;
  if (sought.size() >= kMostSought) throw ship::MessageError("it seeks too many contents");
  sought.insert(id);
}

void TransferPeers::announce(const std::string& id, const std::vector<ChunkRun>& runs) {
  if (runs.empty()) return;
  for (std::size_t number = 0; number < peers_.size(); ++number) {
    if (peers_[number]->sought.contains(id)) say(number, ship::Have{id, runs});
  }
}

void TransferPeers::listen(std::size_t number, net::Link& link) {
  std::string words;
  try {
    while (true) {
      const auto message =
          std::make_shared<const ship::Message>(ship::parse_message(link.receive()));
      inbox_.add_when_there_is_room([this, number, message] {
        if (!peers_[number]->there) return;
        try {
          ears_.hear(number, *message);
        } catch (const ship::MessageError& error) {
          drop(number, error.what());
        }
      });
    }
  } catch (const net::LinkError& error) {
    words = error.what();
  } catch (const ship::MessageError& error) {
    words = error.what();
  }
  inbox_.add([this, number, words] { drop(number, words); });
}

}  // namespace strait::transfer
