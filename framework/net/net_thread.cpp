#include "framework/net/net_thread.h"

#include <fmt/format.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <future>
#include <system_error>

namespace strait::net {
namespace {

// Often enough for heartbeats and deadlines, which are in seconds.
constexpr std::chrono::milliseconds kRoundAtLeastEvery{50};

std::chrono::milliseconds time_until(Uplink::Time due) {
  const auto now = std::chrono::steady_clock::now();
  if (due <= now) return std::chrono::milliseconds{0};
  if (due >= now + kRoundAtLeastEvery) return kRoundAtLeastEvery;
  return std::chrono::ceil<std::chrono::milliseconds>(due - now);
}

// libzmq aborts the process where it cannot start its two threads. Starts more than these and the
// net thread, because threads that have ended count for another moment: std::system_error where a
// limit forbids that.
zmq::context_t context_if_threads_start() {
  constexpr std::size_t kThreads = 8;
  std::vector<std::jthread> threads;
  std::promise<void> end;  // its destructor lets the threads end
  const std::shared_future<void> ended = end.get_future();
  for (std::size_t i = 0; i < kThreads; ++i) threads.emplace_back([ended] { ended.wait(); });
  return {};
}

}  // namespace

NetThread::NetThread(const NodeOptions& node)
    : context_(context_if_threads_start()),
      gate_(context_, "run-" + node.run.hex(), node.on_event),
      thread_([this] { make_rounds(); }) {}

NetThread::~NetThread() { stop(); }

void NetThread::run(const std::function<void()>& order) {
  // The order refers to the caller's stack, so the caller waits for it.
  std::packaged_task<void()> task(order);
  std::future<void> done = task.get_future();
  {
    const MutexLock lock(mutex_);
    if (stopping_) return;
    tasks_.emplace_back([&task] { task(); });
  }
  // The task is queued before the signal, so the thread that wakes finds it.
  signal_.raise();
  done.get();
}

void NetThread::wake() { signal_.raise(); }

void NetThread::stop() {
  if (!thread_.joinable()) return;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  signal_.raise();
  thread_.join();
}

void NetThread::remove(const Carrier& carrier) {
  std::erase_if(carriers_, [&](const auto& held) { return held.get() == &carrier; });
}

void NetThread::run_tasks() {
  // Taken out under the lock and run without it: a task may hand in another one.
  std::vector<std::function<void()>> tasks;
  {
    const MutexLock lock(mutex_);
    tasks.swap(tasks_);
  }
  for (const auto& task : tasks) task();
}

void NetThread::make_rounds() {
  // Signals such as Ctrl-C are for the main thread.
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  while (true) {
    // Lowered before the work is looked at: a signal raised from here on causes another round.
    signal_.lower();
    run_tasks();
    {
      // Tasks that were accepted before stop() still run, since their callers wait.
      const MutexLock lock(mutex_);
      if (stopping_ && tasks_.empty()) break;
    }
    gate_.turn();
    const auto now = std::chrono::steady_clock::now();
    bool more = false;
    for (const auto& carrier : carriers_) more = carrier->turn(now) || more;
    wait_for_work(more);
  }
  // Carriers are closed by this thread, which owns their sockets.
  for (const auto& carrier : carriers_) carrier->close();
  carriers_.clear();
}

void NetThread::wait_for_work(bool more) {
  std::vector<zmq::pollitem_t> items;
  items.push_back({nullptr, signal_.descriptor(), ZMQ_POLLIN, 0});
  items.push_back(poll_item(gate_.requests(), false));
  for (const auto& carrier : carriers_) carrier->poll_on(items);
  const auto wait = more ? std::chrono::milliseconds{0} : time_until(uplink_.take_due());
  const int count = static_cast<int>(items.size());
  // A process that is stopped and continued may see an interrupted poll; the next round polls
  // again.
  if (zmq_poll(items.data(), count, wait.count()) < 0 && zmq_errno() != EINTR) throw zmq::error_t();
}

}  // namespace strait::net
