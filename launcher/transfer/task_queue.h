#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>

#include "framework/mutex.h"

namespace strait::transfer {

// What one thread is to do, from any thread, in the order in which it came. Whoever adds without
// end what comes from outside waits, so that a peer that talks too much fills its own link.
class TaskQueue {
 public:
  using Work = std::function<void()>;

  void add(Work work) STRAIT_EXCLUDES(mutex_);
  void add_when_there_is_room(Work work) STRAIT_EXCLUDES(mutex_);

  // All that is here; waits for a first one until the deadline.
  std::deque<Work> take_until(std::chrono::steady_clock::time_point deadline)
      STRAIT_EXCLUDES(mutex_);

  // Nobody waits for room any more.
  void close() STRAIT_EXCLUDES(mutex_);
  bool closed() const STRAIT_EXCLUDES(mutex_);

 private:
  static constexpr std::size_t kMostWaiting = 64;

  mutable Mutex mutex_;
  Condition changed_;
  std::deque<Work> works_ STRAIT_GUARDED_BY(mutex_);
  bool closed_ STRAIT_GUARDED_BY(mutex_) = false;
};

}  // namespace strait::transfer
