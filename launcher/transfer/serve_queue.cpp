#include "launcher/transfer/serve_queue.h"

#include <utility>

namespace strait::transfer {

std::optional<std::size_t> ServeQueue::sent_to_another(const Request& request) const {
  if (request.force) return std::nullopt;
  const auto content = sent_to_.find(request.id);
  if (content == sent_to_.end()) return std::nullopt;
  const auto sent = content->second.find(request.chunk);
  if (sent == content->second.end() || sent->second == request.peer) return std::nullopt;
  return sent->second;
}

bool ServeQueue::push(const Request& request) {
  const std::size_t peer = request.peer;
  if (peer >= normal_.size()) {
    normal_.resize(peer + 1);
    forced_.resize(peer + 1);
  }
  if (normal_[peer].size() + forced_[peer].size() >= kMostWaiting) return false;
  sent_to_[request.id][request.chunk] = peer;
  (request.force ? forced_ : normal_)[peer].push_back(request);
  ++waiting_;
  return true;
}

std::optional<ServeQueue::Request> ServeQueue::next_of(std::vector<std::deque<Request>>& queues) {
  for (std::size_t tried = 0; tried < queues.size(); ++tried) {
    turn_ = (turn_ + 1) % queues.size();
    std::deque<Request>& queue = queues[turn_];
    if (queue.empty()) continue;
    Request request = std::move(queue.front());
    queue.pop_front();
    --waiting_;
    return request;
  }
  return std::nullopt;
}

std::optional<ServeQueue::Request> ServeQueue::next() {
  if (auto request = next_of(normal_)) return request;
  return next_of(forced_);
}

std::map<std::size_t, std::string> ServeQueue::waiting() const {
  std::map<std::size_t, std::string> ids;
  for (const auto* queues : {&normal_, &forced_}) {
    for (std::size_t peer = 0; peer < queues->size(); ++peer) {
      const std::deque<Request>& queue = (*queues)[peer];
      if (!queue.empty()) ids.emplace(peer, queue.front().id);
    }
  }
  return ids;
}

void ServeQueue::remove_peer(std::size_t peer) {
  if (peer < normal_.size()) {
    waiting_ -= normal_[peer].size() + forced_[peer].size();
    normal_[peer].clear();
    forced_[peer].clear();
  }
  for (auto& [id, chunks] : sent_to_) {
    std::erase_if(chunks, [peer](const auto& sent) { return sent.second == peer; });
  }
}

}  // namespace strait::transfer
