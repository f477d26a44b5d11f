#pragma once

#include <atomic>
#include <memory>
#include <thread>

#include "framework/mutex.h"
#include "framework/net/frame_memory.h"
#include "framework/net/identity.h"
#include "framework/net/inbox.h"
#include "framework/net/link_options.h"
#include "launcher/base/errors.h"

// The messages between any two transfer agents, as values and as frames. README.md has the byte
// format.
namespace strait::transfer::message {

struct Get {
  std::string id;
  std::uint32_t chunk = 0;
};
struct Chunk {
  std::string id;
  std::uint32_t chunk = 0;
  std::vector<std::byte> content;  // chunk_frame writes it without a copy
};
// The chunk is not here.
struct Missing {
  std::string id;
  std::uint32_t chunk = 0;
};
// A request is delayed by the sender's upload limit, or because the sender is still fetching the
// chunk and makes progress.
struct Wait {};

// The index is the kind on the wire.
using Message = std::variant<Get, Chunk, Missing, Wait>;

net::Frame format(const Message& message);
// A frame of Chunk. The caller writes the chunk's bytes to `content`, which points into the frame.
net::Frame chunk_frame(const std::string& id, std::uint32_t chunk, std::size_t bytes,
                       std::span<std::byte>& content);

// Checks limits before it allocates memory. base::MessageError names what is wrong. Pure.
Message parse_message(std::span<const std::byte> frame);

}  // namespace strait::transfer::message

namespace strait::transfer {

// Options of one end of a link between two transfer agents. Between the launcher and a host agent
// the host agent connects; between two host agents the one with the greater name.
net::LinkOptions transfer_link(const net::ProcessName& listens, const net::ProcessName& dials,
                               const net::ProcessName& peer, const std::string& peer_key,
                               std::chrono::seconds hold);

// The other transfer agents, by number, and the thread that receives from all of them. A number is
// never reused. Any thread may call.
class TransferPeers {
 public:
  struct Handlers {
    // On the receiving thread, which it must not hold up. base::MessageError drops the peer.
    std::function<void(std::size_t peer, message::Message received)> received;
    // Called once for each peer, on any thread.
    std::function<void(std::size_t peer, const std::string& cause)> disconnected;
  };

  explicit TransferPeers(Handlers handlers)
      : handlers_(std::move(handlers)), receiver_([this] { receive_all(); }) {}
  ~TransferPeers() { close(); }
  TransferPeers(const TransferPeers&) = delete;
  TransferPeers& operator=(const TransferPeers&) = delete;

  // Ends all links and calls no handler any more.
  void close();

  // A peer of the same name is dropped. `key`: its public key, for others that link with it.
  void add(const net::ProcessName& name, const std::string& host, std::unique_ptr<net::Link> link,
           const std::string& key);
  void drop(std::size_t peer, const std::string& cause);

  // False: it is not connected (any more).
  bool send(std::size_t peer, const message::Message& message) {
    return send_frame(peer, message::format(message));
  }
  bool send_frame(std::size_t peer, net::Frame frame);

  std::optional<std::size_t> find(const net::ProcessName& name) const;
  bool connected(std::size_t peer) const { return at(peer).connected; }
  const net::ProcessName& name(std::size_t peer) const { return at(peer).name; }
  const std::string& host(std::size_t peer) const { return at(peer).host; }
  const std::string& key(std::size_t peer) const { return at(peer).key; }
  std::chrono::steady_clock::time_point added(std::size_t peer) const { return at(peer).added; }
  net::LinkState state(std::size_t peer) const { return at(peer).link->state(); }

 private:
  struct Peer {
    net::ProcessName name;
    std::string host;
    std::string key;
    std::unique_ptr<net::Link> link;
    std::chrono::steady_clock::time_point added;
    std::atomic<bool> connected = true;
    Mutex sending;  // a link has one sender at a time
  };

  Peer& at(std::size_t peer) const STRAIT_EXCLUDES(mutex_);
  std::size_t count() const STRAIT_EXCLUDES(mutex_);
  void receive_all();

  const Handlers handlers_;
  std::atomic<bool> closing_ = false;
  mutable Mutex mutex_;
  mutable std::deque<Peer> peers_ STRAIT_GUARDED_BY(mutex_);  // grows; references stay valid
  net::Inbox inbox_;
  std::thread receiver_;  // last: it uses all members above
};

}  // namespace strait::transfer
