#include "launcher/transfer/serve_queue.h"

#include <utility>

namespace strait::transfer {

std::optional<std::size_t> ServeQueue::given_to_another(const Wish& wish) const {
  if (wish.insist) return std::nullopt;
  const auto content = given_.find(wish.id);
  if (content == given_.end()) return std::nullopt;
  const auto given = content->second.find(wish.chunk);
  if (given == content->second.end() || given->second == wish.peer) return std::nullopt;
  return given->second;
}

bool ServeQueue::push(const Wish& wish) {
  if (wish.peer >= first_.size()) {
    first_.resize(wish.peer + 1);
    insisted_.resize(wish.peer + 1);
  }
  if (first_[wish.peer].size() + insisted_[wish.peer].size() >= kMostWaiting) return false;
  given_[wish.id][wish.chunk] = wish.peer;
  (wish.insist ? insisted_ : first_)[wish.peer].push_back(wish);
  ++waiting_;
  return true;
}

std::optional<ServeQueue::Wish> ServeQueue::next_of(std::vector<std::deque<Wish>>& queues) {
  for (std::size_t tried = 0; tried < queues.size(); ++tried) {
    turn_ = (turn_ + 1) % queues.size();
    std::deque<Wish>& queue = queues[turn_];
    if (queue.empty()) continue;
    Wish wish = std::move(queue.front());
    queue.pop_front();
    --waiting_;
    return wish;
  }
  return std::nullopt;
}

std::optional<ServeQueue::Wish> ServeQueue::next() {
  if (auto wish = next_of(first_)) return wish;
  return next_of(insisted_);
}

void ServeQueue::gone(std::size_t peer) {
  if (peer < first_.size()) {
    waiting_ -= first_[peer].size() + insisted_[peer].size();
    first_[peer].clear();
    insisted_[peer].clear();
  }
  for (auto& [id, chunks] : given_) {
    std::erase_if(chunks, [peer](const auto& given) { return given.second == peer; });
  }
}

}  // namespace strait::transfer
