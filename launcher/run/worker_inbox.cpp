#include "launcher/run/worker_inbox.h"

#include <iterator>
#include <system_error>
#include <utility>

namespace strait::run {
namespace {

// A bound on memory. Beyond it the receiving threads wait, and flow control stops the senders.
constexpr std::size_t kMostMessages = 4096;

}  // namespace

WorkerInbox::WorkerInbox(std::vector<net::Link*> links)
    : links_(std::move(links)), retired_(links_.size()) {
  listeners_.resize(links_.size());
  try {
    for (std::size_t i = 0; i < links_.size(); ++i) {
      if (links_[i] != nullptr) listen_to(i, links_[i]);
    }
  } catch (const std::system_error&) {
    // A destructor does not run after a failed constructor, and a joinable thread would terminate
    // the launcher.
    end_listeners();
    throw;
  }
}

WorkerInbox::~WorkerInbox() { end_listeners(); }

void WorkerInbox::end_listeners() {
  {
    const MutexLock lock(mutex_);
    closing_ = true;
  }
  // Wakes threads that wait in put() for room: they must see closing_ before they are joined.
  changed_.notify_all();
  for (net::Link* link : links_) {
    if (link == nullptr) continue;
    link->abort(net::LinkError(net::LinkError::Kind::aborted, "the coordinator has ended"));
  }
  for (std::thread& listener : listeners_) {
    if (listener.joinable()) listener.join();
  }
}

void WorkerInbox::retire(std::size_t worker) {
  if (links_[worker] == nullptr) return;
  {
    const MutexLock lock(mutex_);
    retired_[worker] = true;
  }
  // Its thread may wait in put() for room. It must return before it can be joined.
  changed_.notify_all();
  links_[worker]->abort(net::LinkError(net::LinkError::Kind::aborted, "the worker was evicted"));
  listeners_[worker].join();
  links_[worker] = nullptr;
  // After join(), because the thread may have added a message until then.
  const MutexLock lock(mutex_);
  std::erase_if(messages_, [&](const WorkerMessage& message) { return message.worker == worker; });
}

void WorkerInbox::listen_to(std::size_t worker, net::Link* link) {
  {
    const MutexLock lock(mutex_);
    retired_[worker] = false;
  }
  links_[worker] = link;
  listeners_[worker] = std::thread([this, worker, link] { receive_loop(worker, *link); });
}

std::vector<WorkerMessage> WorkerInbox::take_until(std::chrono::steady_clock::time_point deadline) {
  std::vector<WorkerMessage> taken;
  {
    const MutexLock lock(mutex_);
    while (messages_.empty()) {
      if (!changed_.wait_until(mutex_, deadline)) break;
    }
    // All at once: with a thousand workers a lock per message would be contended.
    taken.assign(std::make_move_iterator(messages_.begin()),
                 std::make_move_iterator(messages_.end()));
    messages_.clear();
  }
  // There is room again for the threads that wait in put().
  changed_.notify_all();
  return taken;
}

void WorkerInbox::receive_loop(std::size_t worker, net::Link& link) {
  try {
    while (true) put({worker, parse_stage_message(link.receive())});
  } catch (const net::LinkError& error) {
    put({worker, WorkerMessage::LinkOver{error}});
  } catch (const base::MessageError& error) {
    put({worker, WorkerMessage::Malformed{error.what()}});
  }
}

void WorkerInbox::put(WorkerMessage message) {
  {
    const MutexLock lock(mutex_);
    while (messages_.size() >= kMostMessages && !closing_ && !retired_[message.worker]) {
      changed_.wait(mutex_);
    }
    // Checked again, because the worker may have been retired while this thread waited.
    if (retired_[message.worker]) return;
    messages_.push_back(std::move(message));
  }
  changed_.notify_all();
}

}  // namespace strait::run
