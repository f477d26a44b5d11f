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
#include "launcher/transfer/task_queue.h"
#include "launcher/transfer/transfer_message.h"

namespace strait::transfer {

// Options of one end of a link between two transfer agents. Between the launcher and a host agent
// the host agent connects; between two host agents the one with the greater name.
net::LinkOptions transfer_link(const net::ProcessName& listens, const net::ProcessName& dials,
                               const net::ProcessName& peer, const std::string& peer_key,
                               std::chrono::seconds hold);

// The other transfer agents, by number, with a receiving thread each. Their messages arrive as
// tasks in the queue. A number is never reused. Only the thread of the queue may call.
class TransferPeers {
 public:
  struct Handlers {
    // base::MessageError drops the peer.
    std::function<void(std::size_t peer, const message::Message&)> received;
    // Called once for each peer.
    std::function<void(std::size_t peer, const std::string& cause)> disconnected;
  };

  TransferPeers(TaskQueue& tasks, Handlers handlers)
      : tasks_(tasks), handlers_(std::move(handlers)) {}
  ~TransferPeers();
  TransferPeers(const TransferPeers&) = delete;
  TransferPeers& operator=(const TransferPeers&) = delete;

  // A peer of the same name is dropped.
  std::size_t add(const net::ProcessName& name, const std::string& host,
                  std::unique_ptr<net::Link> link);

  // Closes the link to the peer of this name, if there is one.
  void remove(const net::ProcessName& name, const std::string& cause);

  void send(std::size_t peer, const message::Message& message) {
    send_frame(peer, message::format(message));
  }
  void send_frame(std::size_t peer, net::Frame frame);

  std::optional<std::size_t> find(const net::ProcessName& name) const;
  std::size_t size() const { return peers_.size(); }
  bool connected(std::size_t peer) const { return peers_.at(peer)->connected; }
  const net::ProcessName& name(std::size_t peer) const { return peers_.at(peer)->name; }
  const std::string& host(std::size_t peer) const { return peers_.at(peer)->host; }
  net::LinkState state(std::size_t peer) const { return peers_.at(peer)->link->state(); }

  void subscribe(std::size_t peer, const std::string& id);
  void unsubscribe(std::size_t peer, const std::string& id);
  void unsubscribe_all(const std::string& id);
  // Sends Have to every subscriber of this content.
  void announce(const std::string& id, const std::vector<ChunkRun>& runs);

 private:
  static constexpr std::size_t kMostSubscriptions = 100'000;  // of one peer

  struct Peer {
    net::ProcessName name;
    std::string host;
    std::unique_ptr<net::Link> link;
    bool connected = true;
    std::set<std::string> subscriptions;
    std::thread receiver;
  };

  void drop(std::size_t peer, const std::string& cause);
  void receive(std::size_t number, net::Link& link);

  TaskQueue& tasks_;
  Handlers handlers_;
  std::vector<std::unique_ptr<Peer>> peers_;
};

}  // namespace strait::transfer
