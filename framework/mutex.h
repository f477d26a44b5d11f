#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

// std::mutex with annotations by which clang proves which mutex guards which member
// (-Wthread-safety, part of the tidy check). Other compilers see empty annotations.
#if defined(__clang__)
#define STRAIT_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define STRAIT_THREAD_ANNOTATION(x)
#endif
#define STRAIT_GUARDED_BY(m) STRAIT_THREAD_ANNOTATION(guarded_by(m))
#define STRAIT_REQUIRES(...) STRAIT_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define STRAIT_EXCLUDES(...) STRAIT_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))

namespace strait {

class STRAIT_THREAD_ANNOTATION(capability("mutex")) Mutex {
 public:
  void lock() STRAIT_THREAD_ANNOTATION(acquire_capability()) { mutex_.lock(); }
  void unlock() STRAIT_THREAD_ANNOTATION(release_capability()) { mutex_.unlock(); }

 private:
  friend class Condition;
  std::mutex mutex_;
};

class STRAIT_THREAD_ANNOTATION(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) STRAIT_THREAD_ANNOTATION(acquire_capability(mutex))
      : mutex_(mutex) {
    mutex_.lock();
  }
  ~MutexLock() STRAIT_THREAD_ANNOTATION(release_capability()) { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// Callers wait in a loop with a written-out predicate, so that the analysis sees the guarded reads.
class Condition {
 public:
  void wait(Mutex& mutex) STRAIT_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  // False if the deadline passed.
  bool wait_until(Mutex& mutex, std::chrono::steady_clock::time_point deadline)
      STRAIT_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    const bool woken = condition_.wait_until(lock, deadline) == std::cv_status::no_timeout;
    lock.release();
    return woken;
  }
  void notify_all() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace strait
