#include "launcher/transfer/slow_lane.h"

#include <utility>

namespace strait::transfer {

FileWorker::FileWorker() : thread_([this] { run(); }) {}

FileWorker::~FileWorker() {
  {
    const MutexLock lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void FileWorker::add(std::function<void()> work) {
  {
    const MutexLock lock(mutex_);
    works_.push_back(std::move(work));
  }
  changed_.notify_all();
}

void FileWorker::run() {
  while (true) {
    std::function<void()> work;
    {
      const MutexLock lock(mutex_);
      while (works_.empty() && !ending_) changed_.wait(mutex_);
      if (ending_) return;
      work = std::move(works_.front());
      works_.pop_front();
    }
    work();
  }
}

}  // namespace strait::transfer
