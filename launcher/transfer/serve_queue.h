#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace strait::transfer {

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
