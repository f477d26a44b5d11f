#include "launcher/transfer/ship_peers.h"

#include <fmt/format.h>

#include <utility>

namespace strait::transfer {

ShipPeers::~ShipPeers() {
  inbox_.close();
  const net::LinkError cause(net::LinkError::Kind::aborted, "nothing more is shipped here");
  for (const auto& peer : peers_) peer->link->abort(cause);
  for (const auto& peer : peers_) peer->listener.join();
}

std::size_t ShipPeers::join(const net::ProcessName& name, const std::string& host,
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

void ShipPeers::drop(std::size_t number, const std::string& words) {
  Peer& peer = *peers_.at(number);
  if (!peer.there) return;
  peer.there = false;
  peer.sought.clear();
  peer.link->abort(net::LinkError(net::LinkError::Kind::aborted, words));
  ears_.gone(number, fmt::format("{}: {}", peer.host, words));
}

void ShipPeers::send(std::size_t number, net::Frame frame) {
  Peer& peer = *peers_.at(number);
  if (!peer.there) return;
  try {
    peer.link->send(std::move(frame));
  } catch (const net::LinkError&) {
    // Its listener hears the same, and tells everybody that it is gone.
  }
}

std::optional<std::size_t> ShipPeers::called(const net::ProcessName& name) const {
  for (std::size_t number = 0; number < peers_.size(); ++number) {
    if (peers_[number]->there && peers_[number]->name == name) return number;
  }
  return std::nullopt;
}

void ShipPeers::seeks(std::size_t number, const std::string& id) {
  std::set<std::string>& sought = peers_.at(number)->sought;
  if (sought.size() >= kMostSought) throw ship::MessageError("it seeks too many contents");
  sought.insert(id);
}

void ShipPeers::announce(const std::string& id, const std::vector<PieceRun>& runs) {
  if (runs.empty()) return;
  for (std::size_t number = 0; number < peers_.size(); ++number) {
    if (peers_[number]->sought.contains(id)) say(number, ship::Have{id, runs});
  }
}

void ShipPeers::listen(std::size_t number, net::Link& link) {
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
