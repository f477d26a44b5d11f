#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <thread>

#include "framework/mutex.h"

namespace strait::transfer {

// The tasks of one thread, in the order in which any threads add them.
class TaskQueue {
 public:
  using Task = std::function<void()>;

  void add(Task task) STRAIT_EXCLUDES(mutex_);
  // Blocks while the queue is full. For tasks that come from the network: a peer that sends too
  // much fills its own link, not our memory.
  void add_when_not_full(Task task) STRAIT_EXCLUDES(mutex_);

  // All tasks; waits for the first one until the deadline or close().
  std::deque<Task> take_until(std::chrono::steady_clock::time_point deadline)
      STRAIT_EXCLUDES(mutex_);

  // Ends every wait, now and later.
  void close() STRAIT_EXCLUDES(mutex_);
  bool closed() const STRAIT_EXCLUDES(mutex_);

 private:
  static constexpr std::size_t kMostTasks = 64;

  mutable Mutex mutex_;
  Condition changed_;
  std::deque<Task> tasks_ STRAIT_GUARDED_BY(mutex_);
  bool closed_ STRAIT_GUARDED_BY(mutex_) = false;
};

// A second thread for what reads or writes whole files, so that the first one serves chunks
// meanwhile. In the order of the calls.
class FileWorker {
 public:
  explicit FileWorker(TaskQueue& first) : first_(first), thread_([this] { run_tasks(); }) {}
  ~FileWorker() { stop(); }
  FileWorker(const FileWorker&) = delete;
  FileWorker& operator=(const FileWorker&) = delete;

  // Gets the error that ended the work; null: it is done.
  using After = std::function<void(std::exception_ptr)>;

  // Runs `work`, and then adds `after` to the queue of the first thread.
  void run(TaskQueue::Task work, After after);
  // Finishes the current work and drops the rest.
  void stop();

 private:
  void run_tasks();

  TaskQueue& first_;
  TaskQueue tasks_;
  std::thread thread_;
};

}  // namespace strait::transfer
