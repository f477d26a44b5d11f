#pragma once

#include <deque>
#include <functional>
#include <map>
#include <variant>

#include "framework/mutex.h"
#include "framework/net/link.h"

namespace strait::net {

// A link that reports arrivals, as links of a Node do. Wrappers need not.
class InboxLink : public Link {
 public:
  // Calls `notify` now and after each frame or error that arrives, and perhaps at other times, on
  // any thread, with a lock of this link held. Null ends that: no call runs when this returns.
  virtual void on_arrival(std::function<void()> notify) = 0;
};

// A frame of a link, or the error with which the link ended. Nothing follows the error.
struct Arrival {
  std::size_t link = 0;  // the number that the owner gave it
  std::variant<Frame, LinkError> content;

  // Throws the error of a link that has ended.
  const Frame& frame() const {
    if (const auto* error = std::get_if<LinkError>(&content)) throw LinkError(*error);
    return std::get<Frame>(content);
  }
};

// Receives from any number of links in one thread: what epoll is for sockets. A frame stays in its
// link until it is taken, so each link stops its own peer and bounds its own memory. Links with
// frames take turns.
//
// One thread takes and removes. Any thread may add, wake and close.
class Inbox {
 public:
  using Time = std::chrono::steady_clock::time_point;

  Inbox() = default;
  ~Inbox();  // no thread takes any more, and the links that have not ended still live
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  // Only the inbox receives on the link from now on. It must live until its error is taken, or it
  // is removed. No other link of the inbox has this number. std::bad_cast: not an InboxLink.
  void add(std::size_t number, Link& link) STRAIT_EXCLUDES(mutex_);
  // Ignored if the link has ended.
  void remove(std::size_t number) STRAIT_EXCLUDES(mutex_);

  // The next arrival. Nothing: the deadline has passed, wake() was called, or the inbox is closed
  // and all links have ended.
  std::optional<Arrival> take_until(Time deadline) STRAIT_EXCLUDES(mutex_);
  // Ends the current wait, or the next one.
  void wake() STRAIT_EXCLUDES(mutex_);
  // No link is added any more.
  void close() STRAIT_EXCLUDES(mutex_);

 private:
  void enqueue(std::size_t number) STRAIT_EXCLUDES(mutex_);
  std::optional<std::pair<std::size_t, InboxLink*>> next_until(Time deadline)
      STRAIT_EXCLUDES(mutex_);

  // Not held while a link is called: links call enqueue() with their own lock held.
  Mutex mutex_;
  Condition changed_;
  bool closed_ STRAIT_GUARDED_BY(mutex_) = false;
  bool woken_ STRAIT_GUARDED_BY(mutex_) = false;
  std::map<std::size_t, InboxLink*> links_ STRAIT_GUARDED_BY(mutex_);
  std::deque<std::size_t> ready_ STRAIT_GUARDED_BY(mutex_);  // links that may have something
};

}  // namespace strait::net
