#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "framework/mutex.h"
#include "framework/net/link.h"
#include "launcher/run/control_message.h"

namespace strait::run {

// A message of worker number `worker`, or the end of its link, after which nothing follows.
struct WorkerMessage {
  struct LinkOver {
    net::LinkError error;
  };
  struct Malformed {  // a frame that is not a StageMessage
    std::string text;
  };
  std::size_t worker = 0;
  std::variant<StageMessage, LinkOver, Malformed> content;
};

// Receives from all control links, with one thread for each, and returns the messages in order of
// arrival. Links may be null. The caller owns them; the destructor aborts them to end the threads.
// One thread may call.
class WorkerInbox {
 public:
  // std::system_error: this user may start no more threads.
  explicit WorkerInbox(std::vector<net::Link*> links);
  ~WorkerInbox();
  WorkerInbox(const WorkerInbox&) = delete;
  WorkerInbox& operator=(const WorkerInbox&) = delete;

  // Aborts the worker's link, ends its thread and discards its messages. The link may then be
  // destroyed.
  void retire(std::size_t worker) STRAIT_EXCLUDES(mutex_);
  // Receives from this link from now on. The worker must have none, or be retired.
  void listen_to(std::size_t worker, net::Link* link) STRAIT_EXCLUDES(mutex_);

  // All messages that have arrived; waits for the first one until the deadline.
  std::vector<WorkerMessage> take_until(std::chrono::steady_clock::time_point deadline)
      STRAIT_EXCLUDES(mutex_);

 private:
  void receive_loop(std::size_t worker, net::Link& link);
  void put(WorkerMessage message) STRAIT_EXCLUDES(mutex_);
  void end_listeners() STRAIT_EXCLUDES(mutex_);

  std::vector<net::Link*> links_;  // null: retired, or not connected yet
  Mutex mutex_;
  Condition changed_;
  std::deque<WorkerMessage> messages_ STRAIT_GUARDED_BY(mutex_);
  std::vector<bool> retired_ STRAIT_GUARDED_BY(mutex_);
  bool closing_ STRAIT_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> listeners_;
};

}  // namespace strait::run
