#pragma once

#include <chrono>

#include "tests/interleavings/fibers.h"

// Stands for framework/mutex.h where product code runs on fibers: one fiber runs at a time and none
// is preempted, so a mutex needs no state.
#define STRAIT_GUARDED_BY(m)
#define STRAIT_REQUIRES(...)
#define STRAIT_EXCLUDES(...)

// Names of their own, so that libraries with the real ones can be linked, too.
namespace strait {
inline namespace on_fibers {

class Mutex {
 public:
  void lock() {}
  void unlock() {}
};

class MutexLock {
 public:
  explicit MutexLock(Mutex&) {}
  ~MutexLock() {}
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;
};

// Time stands still: a wait with a deadline ends by notify_all(), too.
class Condition {
 public:
  void wait(Mutex&) { interleavings::Fibers::wait_for(this); }
  bool wait_until(Mutex&, std::chrono::steady_clock::time_point) {
    interleavings::Fibers::wait_for(this);
    return true;
  }
  void notify_all() { interleavings::Fibers::notify(this); }
};

}  // namespace on_fibers
}  // namespace strait
