#include "launcher/transfer/task_queue.h"

#include <utility>

namespace strait::transfer {

void TaskQueue::add(Work work) {
  {
    const MutexLock lock(mutex_);
    works_.push_back(std::move(work));
  }
  changed_.notify_all();
}

void TaskQueue::add_when_there_is_room(Work work) {
  {
    const MutexLock lock(mutex_);
    while (works_.size() >= kMostWaiting && !closed_) changed_.wait(mutex_);
    works_.push_back(std::move(work));
  }
  changed_.notify_all();
}

std::deque<TaskQueue::Work> TaskQueue::take_until(std::chrono::steady_clock::time_point deadline) {
  std::deque<Work> taken;
  {
    const MutexLock lock(mutex_);
    while (works_.empty() && !closed_) {
      if (!changed_.wait_until(mutex_, deadline)) break;
    }
    taken.swap(works_);
  }
  changed_.notify_all();
  return taken;
}

void TaskQueue::close() {
  {
    const MutexLock lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
}

bool TaskQueue::closed() const {
  const MutexLock lock(mutex_);
  return closed_;
}

}  // namespace strait::transfer
