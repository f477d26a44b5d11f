#pragma once

#include <functional>

#include "framework/mutex.h"
#include "framework/net/link.h"

namespace strait::stages {

// The current wait of the compute thread, the total time of all waits, and the time of training
// steps without waits. The compute thread writes it wherever it blocks and when a step ends. The
// reporting thread reads it for progress and stall reports, and `auto` codecs read it for their
// choice.
class WaitClock {
 public:
  struct Reading {
    std::string what;                 // "forward of micro-batch 7"; empty: no wait
    const net::Link* link = nullptr;  // the link that is waited on; null: none at the moment
    std::chrono::steady_clock::time_point since;  // of the current wait
    double total = 0;                             // seconds of all finished waits
    double busy = 0;                              // of all finished steps: seconds without waits
  };

  // Returns the link that is waited on at the time of the call. Called by the reader.
  using Awaited = std::function<const net::Link*()>;

  // Lives as long as the wait. Waits do not nest, because the inner one would end the outer.
  class Wait {
   public:
    Wait(WaitClock& clock, std::string what, const net::Link& link);
    Wait(WaitClock& clock, std::string what, Awaited awaited);
    ~Wait();
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

   private:
    WaitClock& clock_;
  };

  void step_ended(double busy_seconds);

  Reading read() const;

 private:
  using Clock = std::chrono::steady_clock;

  mutable Mutex mutex_;
  std::string what_ STRAIT_GUARDED_BY(mutex_);
  Awaited awaited_ STRAIT_GUARDED_BY(mutex_);
  Clock::time_point since_ STRAIT_GUARDED_BY(mutex_);
  double total_ STRAIT_GUARDED_BY(mutex_) = 0;
  double busy_ STRAIT_GUARDED_BY(mutex_) = 0;
};

}  // namespace strait::stages
