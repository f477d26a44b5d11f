#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace strait::transfer {

// Who asked us for which chunks, and who is served next: everybody in turn, and within one in the
// order asked; who insists on what somebody else was given comes last. Remembers to whom each chunk
// was given, so that our uplink carries it once and the others get it from there. Pure.
class ServeQueue {
 public:
  static constexpr std::size_t kMostWaiting = 64;  // of one peer

  struct Wish {
    std::size_t peer = 0;
    std::string id;
    std::uint32_t chunk = 0;
    bool insist = false;
  };

  // Who was given the chunk, if that is somebody else and the wish does not insist.
  std::optional<std::size_t> given_to_another(const Wish& wish) const;
  bool push(const Wish& wish);  // false: the peer has asked for too much at once
  std::optional<Wish> next();
  void gone(std::size_t peer);
  bool empty() const { return waiting_ == 0; }

 private:
  std::optional<Wish> next_of(std::vector<std::deque<Wish>>& queues);

  std::vector<std::deque<Wish>> first_;     // by peer
  std::vector<std::deque<Wish>> insisted_;  // likewise
  std::size_t turn_ = 0;
  std::size_t waiting_ = 0;
  std::map<std::string, std::map<std::uint32_t, std::size_t>> given_;  // by content, chunk: to whom
};

}  // namespace strait::transfer
