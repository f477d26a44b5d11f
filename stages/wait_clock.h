#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "framework/mutex.h"
#include "framework/net/link.h"

namespace strait::stages {

// What the compute thread is waiting for, since when, and how long it has waited in all. The
// compute thread writes it at the one place where it blocks; the reporting thread reads it.
class WaitClock {
 public:
  struct Reading {
    std::string what;                 // "forward of micro-batch 7"; empty: not waiting
    const net::Link* link = nullptr;  // over which it must come; null: over none just now
    std::chrono::steady_clock::time_point since;
    double total = 0;  // seconds of all finished waits
  };

  // The link that is waited on at the moment of asking; asked by whoever reads.
  using Awaited = std::function<const net::Link*()>;

  // Lives as long as the wait.
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

  Reading read() const;

 private:
  using Clock = std::chrono::steady_clock;

  mutable Mutex mutex_;
  std::string what_ STRAIT_GUARDED_BY(mutex_);
  Awaited awaited_ STRAIT_GUARDED_BY(mutex_);
  Clock::time_point since_ STRAIT_GUARDED_BY(mutex_);
  double total_ STRAIT_GUARDED_BY(mutex_) = 0;
};

}  // namespace strait::stages
