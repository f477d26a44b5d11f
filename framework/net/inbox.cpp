#include "framework/net/inbox.h"

#include <algorithm>

namespace strait::net {

Inbox::~Inbox() {
  // Without the lock, because a link may report at the same time. Nothing changes the map any more.
  for (const auto& [number, link] : links_) link->on_arrival(nullptr);
}

void Inbox::add(std::size_t number, Link& link) {
  auto& reports = dynamic_cast<InboxLink&>(link);
  {
    const MutexLock lock(mutex_);
    if (!links_.emplace(number, &reports).second) {
      throw std::logic_error("an inbox has a link of this number already");
    }
  }
  // Without the lock, because the link may report at once what has arrived already.
  reports.on_arrival([this, number] { enqueue(number); });
}

void Inbox::remove(std::size_t number) {
  InboxLink* link = nullptr;
  {
    const MutexLock lock(mutex_);
    const auto found = links_.find(number);
    if (found == links_.end()) return;
    link = found->second;
    links_.erase(found);
    std::erase(ready_, number);
  }
  link->on_arrival(nullptr);
}

void Inbox::close() {
  {
    const MutexLock lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
}

void Inbox::wake() {
  {
    const MutexLock lock(mutex_);
    woken_ = true;
  }
  changed_.notify_all();
}

void Inbox::enqueue(std::size_t number) {
  {
    const MutexLock lock(mutex_);
    // A link is in the queue once at most: it is asked again after each frame.
    if (!links_.contains(number) || std::ranges::find(ready_, number) != ready_.end()) return;
    ready_.push_back(number);
  }
  changed_.notify_all();
}

std::optional<Arrival> Inbox::take_until(Time deadline) {
  constexpr Time kAtOnce{};
  while (const auto next = next_until(deadline)) {
    const auto [number, link] = *next;
    try {
      if (auto frame = link->receive_until(kAtOnce)) {
        enqueue(number);  // after the others: it may have more
        return Arrival{number, std::move(*frame)};
      }
    } catch (const LinkError& error) {
      remove(number);
      return Arrival{number, error};
    }
  }
  return std::nullopt;
}

std::optional<std::pair<std::size_t, InboxLink*>> Inbox::next_until(Time deadline) {
  const MutexLock lock(mutex_);
  while (ready_.empty()) {
    if (std::exchange(woken_, false)) return std::nullopt;
    if (closed_ && links_.empty()) return std::nullopt;
    if (deadline == Time::max()) {
      changed_.wait(mutex_);
    } else if (!changed_.wait_until(mutex_, deadline) && ready_.empty()) {
      return std::nullopt;
    }
  }
  // Taken out before the link is asked: what arrives from now on queues it again.
  const std::size_t number = ready_.front();
  ready_.pop_front();
  return std::pair(number, links_.at(number));
}

}  // namespace strait::net
