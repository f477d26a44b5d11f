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
#include "launcher/control/control_message.h"

namespace strait::control {

// Something came over the control link of station number `station`, or the link is over: then this
// was its last letter.
struct Letter {
  struct LinkOver {
    net::LinkError error;
  };
  struct Garbled {  // not a message of ours
    std::string text;
  };
  std::size_t station = 0;
  std::variant<StageMessage, LinkOver, Garbled> content;
};

// Listens to all control links at once, one thread each, and hands out what comes in the order in
// which it came. Links may be null for now. They stay the caller's; the destructor aborts them to
// end its threads. One thread may call.
class StationInbox {
 public:
  explicit StationInbox(std::vector<net::Link*> links);
  ~StationInbox();
  StationInbox(const StationInbox&) = delete;
  StationInbox& operator=(const StationInbox&) = delete;

  // The station's link is about to end, with what it said: nobody listens to it any more.
  void retire(std::size_t station) STRAIT_EXCLUDES(mutex_);
  // From now on this is its link.
  void listen_to(std::size_t station, net::Link* link) STRAIT_EXCLUDES(mutex_);

  // Everything that is here; waits for a first letter until the deadline.
  std::vector<Letter> take_until(std::chrono::steady_clock::time_point deadline)
      STRAIT_EXCLUDES(mutex_);

 private:
  void listen(std::size_t station, net::Link& link);
  void put(Letter letter) STRAIT_EXCLUDES(mutex_);

  std::vector<net::Link*> links_;  // null: retired, or not there yet
  Mutex mutex_;
  Condition changed_;
  std::deque<Letter> letters_ STRAIT_GUARDED_BY(mutex_);
  std::vector<bool> retired_ STRAIT_GUARDED_BY(mutex_);
  bool closing_ STRAIT_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> listeners_;
};

}  // namespace strait::control
