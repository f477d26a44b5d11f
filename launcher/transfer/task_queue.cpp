#include "launcher/transfer/task_queue.h"

#include <utility>

namespace strait::transfer {

void TaskQueue::add(Task task) {
  {
    const MutexLock lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  changed_.notify_all();
}

void TaskQueue::add_when_not_full(Task task) {
  {
    const MutexLock lock(mutex_);
    while (tasks_.size() >= kMostTasks && !closed_) changed_.wait(mutex_);
    tasks_.push_back(std::move(task));
  }
  changed_.notify_all();
}

std::deque<TaskQueue::Task> TaskQueue::take_until(std::chrono::steady_clock::time_point deadline) {
  std::deque<Task> taken;
  {
    const MutexLock lock(mutex_);
    while (tasks_.empty() && !closed_) {
      if (!changed_.wait_until(mutex_, deadline)) break;
    }
    taken.swap(tasks_);
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

void FileWorker::run(TaskQueue::Task work, After after) {
  tasks_.add([this, work = std::move(work), after = std::move(after)] {
    std::exception_ptr error;
    try {
      work();
    } catch (const std::exception&) {
      error = std::current_exception();
    }
    first_.add([after, error = std::move(error)] { after(error); });
  });
}

void FileWorker::stop() {
  tasks_.close();
  if (thread_.joinable()) thread_.join();
}

void FileWorker::run_tasks() {
  while (!tasks_.closed()) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::hours(1);
    for (const TaskQueue::Task& task : tasks_.take_until(deadline)) {
      if (tasks_.closed()) return;
      task();
    }
  }
}

}  // namespace strait::transfer
