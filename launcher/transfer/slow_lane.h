#pragma once

#include <deque>
#include <functional>
#include <thread>

#include "framework/mutex.h"

namespace strait::transfer {

// A thread for what reads or writes whole files, so that chunks go on meanwhile. In the order
// given; what has not begun when this object ends is not done.
class FileWorker {
 public:
  FileWorker();
  ~FileWorker();
  FileWorker(const FileWorker&) = delete;
  FileWorker& operator=(const FileWorker&) = delete;

  void add(std::function<void()> work) STRAIT_EXCLUDES(mutex_);  // which must not throw

 private:
  void run() STRAIT_EXCLUDES(mutex_);

  Mutex mutex_;
  Condition changed_;
  std::deque<std::function<void()>> works_ STRAIT_GUARDED_BY(mutex_);
  bool ending_ STRAIT_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace strait::transfer
