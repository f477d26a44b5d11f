// The engine's thread: one exchange after the other.

#include "framework/sync/sync_error.h"
#include "framework/sync/sync_rounds.h"

namespace strait::sync {
namespace {

using ExchangeClock = std::chrono::steady_clock;

// How often the links are drained while a new membership is being agreed on.
constexpr std::chrono::milliseconds kDrainInterval{20};

}  // namespace

net::LinkError SyncRounds::leaving() {
  return {net::LinkError::Kind::aborted, "the replica left in the middle of a sync round"};
}

void SyncRounds::wait_until_ready(Range range) {
  const MutexLock lock(mutex_);
  while (!closing_ && !ready_.cover(slots_.layout(), range)) changed_.wait(mutex_);
  if (closing_) throw leaving();
}

void SyncRounds::exchange_rounds() {
  while (true) {
    bool abandoned = false;
    {
      const MutexLock lock(mutex_);
      while (!closing_ && (error_ != nullptr || (!requested_ && !abandoned_)))
        changed_.wait(mutex_);
      if (abandoned_ && !requested_)
        changed_.wait_until(mutex_, ExchangeClock::now() + kDrainInterval);
      if (closing_) return;
      abandoned = !requested_;
      requested_ = false;
    }
    if (abandoned)
      drain();
    else
      exchange_one();
  }
}

// Members that do not know of the new membership yet may wait for room in this replica's window.
void SyncRounds::drain() {
  try {
    links_.drain();
  } catch (const std::exception&) {
    {
      const MutexLock lock(mutex_);
      error_ = std::current_exception();
    }
    changed_.notify_all();
  }
}

void SyncRounds::exchange_one() {
  std::exception_ptr error;
  bool abandoned = false;
  try {
    // Here and not in regroup(): only this thread uses the links while a round is in progress.
    links_.regroup(round_->membership);
    // Rounds of other hooks read slots that do not change, so they do not wait for the gradient of
    // the next step, which already arrives.
    const bool of_gradient = round_->opened.hook == Hook::gradient;
    const ExchangeHooks hooks{[this, of_gradient](Range range) {
                                if (of_gradient) wait_until_ready(range);
                              },
                              [this] {
                                {
                                  const MutexLock lock(mutex_);
                                  read_ = true;
                                }
                                changed_.notify_all();
                              },
                              grouped_, while_waiting()};
    run_exchange(*round_, *method_, slots_, links_, hooks);
  } catch (const SyncError& thrown) {
    abandoned = thrown.kind() == SyncError::Kind::membership_changed;
    if (!abandoned) error = std::current_exception();
  } catch (const std::exception&) {
    error = std::current_exception();
  }
  {
    const MutexLock lock(mutex_);
    error_ = error;
    exchanged_ = true;
    // An abandoned round reads nothing any more, so the trainer need not wait for it.
    read_ = read_ || abandoned;
    abandoned_ = abandoned;
    round_seconds_ = std::chrono::duration<double>(ExchangeClock::now() - opened_at_).count();
  }
  changed_.notify_all();
  if (grouped_.group != nullptr && error == nullptr) watch_sums();
}

WhileWaiting SyncRounds::while_waiting() {
  return [this](std::optional<std::size_t> member) {
    {
      const MutexLock lock(mutex_);
      if (closing_) throw leaving();
    }
    return links_.check(member);
  };
}

// Beside the trainer, which goes on until it reads from the device.
void SyncRounds::watch_sums() {
  try {
    grouped_.group->watch(while_waiting());
  } catch (const std::exception&) {
    const MutexLock lock(mutex_);
    error_ = std::current_exception();
  }
  changed_.notify_all();
}

}  // namespace strait::sync
