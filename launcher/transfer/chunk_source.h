#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/net/frame_memory.h"
#include "launcher/transfer/content_store.h"

namespace strait::transfer {

// Bytes a second of a setting in megabits a second.
constexpr double bytes_per_second(double megabits) { return megabits * 1e6 / 8; }

// Says when the next bytes may go so that the average stays below the limit. Pure: no clock.
class RateLimit {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit RateLimit(double bytes_per_second = 0) : rate_(bytes_per_second) {}  // 0: no limit

  Time due() const { return due_; }
  void add(Time now, std::uint64_t bytes) {
    if (rate_ <= 0) return;
    const std::chrono::duration<double> takes(static_cast<double>(bytes) / rate_);
    due_ = std::max(due_, now) + std::chrono::duration_cast<Time::duration>(takes);
  }

 private:
  double rate_;
  Time due_{};
};

// The chunks that this process can send to others, by content: of files of its host and of fetched
// contents. A chunk is verified before it is sent, so that a file that was modified or removed
// since is only a missing chunk. One thread.
class ChunkSource {
 public:
  struct Offer {
    ChunkTable table;
    std::filesystem::path path;
    ChunkSet chunks;
    std::shared_ptr<const PinnedContent> content;  // pinned while it is offered; null for files
  };

  void offer(Offer offer);  // replaces an offer of the same content that has fewer chunks
  void add(const std::string& id, std::uint32_t chunk);
  const Offer* find(const std::string& id) const;  // null: not offered

  // The message that carries the chunk; nothing where it is missing (by now).
  std::optional<net::Frame> read(const std::string& id, std::uint32_t chunk);

  void remove(const std::string& id) { offers_.erase(id); }
  // Withdraws files that do not exist any more.
  void remove_deleted();

 private:
  std::map<std::string, Offer> offers_;
};

// The requests for our chunks in the order in which they are served: peers in turn, requests of a
// peer in their order, forced requests last. Remembers to which peer each chunk went, so that our
// uplink carries it once and other peers get it from there. Pure.
class ServeQueue {
 public:
  static constexpr std::size_t kMostWaiting = 64;  // of one peer

  struct Request {
    std::size_t peer = 0;
    std::string id;
    std::uint32_t chunk = 0;
    bool force = false;
  };

  // The other peer that the chunk went to. Nothing: none, or the request is forced.
  std::optional<std::size_t> sent_to_another(const Request& request) const;
  bool push(const Request& request);  // false: too many requests of this peer wait
  std::optional<Request> next();
  void remove_peer(std::size_t peer);
  void forget(const std::string& id) { sent_to_.erase(id); }
  bool empty() const { return waiting_ == 0; }
  // Of each peer that waits, a content that it waits for.
  std::map<std::size_t, std::string> waiting() const;

 private:
  std::optional<Request> next_of(std::vector<std::deque<Request>>& queues);

  std::vector<std::deque<Request>> normal_;  // by peer
  std::vector<std::deque<Request>> forced_;  // by peer
  std::size_t turn_ = 0;
  std::size_t waiting_ = 0;
  std::map<std::string, std::map<std::uint32_t, std::size_t>> sent_to_;  // content, chunk: peer
};

}  // namespace strait::transfer
