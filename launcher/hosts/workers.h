#pragma once

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "framework/mutex.h"

namespace strait::transfer {

// Threads that run tasks, begun in the order in which they were added. A task throws nothing.
class Workers {
 public:
  explicit Workers(int threads) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
  }
  ~Workers() { stop(); }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  void add(std::function<void()> task) STRAIT_EXCLUDES(mutex_) {
    {
      const MutexLock lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    changed_.notify_all();
  }

  // Finishes the tasks that have begun and drops the others.
  void stop() STRAIT_EXCLUDES(mutex_) {
    {
      const MutexLock lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }

 private:
  void run() STRAIT_EXCLUDES(mutex_) {
    while (true) {
      std::function<void()> task;
      {
        const MutexLock lock(mutex_);
        while (tasks_.empty() && !stopped_) changed_.wait(mutex_);
        if (stopped_) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task();
    }
  }

  Mutex mutex_;
  Condition changed_;
  std::deque<std::function<void()>> tasks_ STRAIT_GUARDED_BY(mutex_);
  bool stopped_ STRAIT_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace strait::transfer
