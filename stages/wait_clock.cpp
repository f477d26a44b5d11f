#include "stages/wait_clock.h"

namespace strait::stages {

WaitClock::Wait::Wait(WaitClock& clock, std::string what, const net::Link& link)
    : Wait(clock, std::move(what), [&link] { return &link; }) {}

WaitClock::Wait::Wait(WaitClock& clock, std::string what, Awaited awaited) : clock_(clock) {
  const MutexLock lock(clock_.mutex_);
  clock_.what_ = std::move(what);
  clock_.awaited_ = std::move(awaited);
  clock_.since_ = Clock::now();
}

WaitClock::Wait::~Wait() {
  const MutexLock lock(clock_.mutex_);
  clock_.total_ += std::chrono::duration<double>(Clock::now() - clock_.since_).count();
  clock_.what_.clear();
}

void WaitClock::step_ended(double busy_seconds) {
  const MutexLock lock(mutex_);
  busy_ += busy_seconds;
}

WaitClock::Reading WaitClock::read() const {
  const MutexLock lock(mutex_);
  Reading reading;
  reading.what = what_;
  reading.total = total_;
  reading.busy = busy_;
  // Only during a wait: afterwards the object behind awaited_ may be destroyed.
  reading.link = what_.empty() ? nullptr : awaited_();
  reading.since = since_;
  return reading;
}

}  // namespace strait::stages
