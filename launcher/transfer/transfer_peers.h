#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "framework/net/link.h"
#include "framework/net/link_options.h"
#include "framework/net/process_name.h"
#include "launcher/transfer/transfer_message.h"
#include "launcher/transfer/task_queue.h"

namespace strait::transfer {

// Options of one end of a link between two transfer agents. Between the launcher and a host agent
// the host agent connects; between two host agents the one with the greater name.
net::LinkOptions transfer_link(const net::ProcessName& listens, const net::ProcessName& dials,
                               const net::ProcessName& peer, const std::string& peer_key,
                               std::chrono::seconds hold);

// The other porters, by number, and a thread each that listens to them. What they say arrives in
// the inbox as work. A number is never given twice. The inbox's thread only.
class TransferPeers {
 public:
  struct Ears {
    std::function<void(std::size_t peer, const ship::Message&)> hear;
    std::function<void(std::size_t peer, const std::string& words)> gone;  // once
  };

  TransferPeers(TaskQueue& inbox, Ears ears) : inbox_(inbox), ears_(std::move(ears)) {}
  ~TransferPeers();
  TransferPeers(const TransferPeers&) = delete;
  TransferPeers& operator=(const TransferPeers&) = delete;

  std::size_t join(const net::ProcessName& name, const std::string& host,
                   std::unique_ptr<net::Link> link);
  void drop(std::size_t peer, const std::string& words);

  void say(std::size_t peer, const ship::Message& message) { send(peer, ship::format(message)); }
  void send(std::size_t peer, net::Frame frame);

  std::optional<std::size_t> called(const net::ProcessName& name) const;
  std::size_t size() const { return peers_.size(); }
  bool there(std::size_t peer) const { return peers_.at(peer)->there; }
  const net::ProcessName& name(std::size_t peer) const { return peers_.at(peer)->name; }
  const std::string& host(std::size_t peer) const { return peers_.at(peer)->host; }
  net::LinkState state(std::size_t peer) const { return peers_.at(peer)->link->state(); }

  void seeks(std::size_t peer, const std::string& id);
  // To everybody who seeks this content.
  void announce(const std::string& id, const std::vector<ChunkRun>& runs);

 private:
  static constexpr std::size_t kMostSought = 100'000;  // contents, by one peer

  struct Peer {
    net::ProcessName name;
    std::string host;
    std::unique_ptr<net::Link> link;
    bool there = true;
    std::set<std::string> sought;
    std::thread listener;
  };

  void listen(std::size_t number, net::Link& link);

  TaskQueue& inbox_;
  Ears ears_;
  std::vector<std::unique_ptr<Peer>> peers_;
};

}  // namespace strait::transfer
