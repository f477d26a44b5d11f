#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "framework/mutex.h"
#include "framework/sync/membership.h"

namespace strait::sync {

// Who takes part, as it is told from outside while a run goes: whoever decides that a replica has
// left says so here, and those who wait for that replica look here. Epoch 0 is whoever begins.
//
// What an epoch is known for does not make it hold: replicas agree on the step from which it does.
//
// Threads: any may call. Callbacks run on the calling thread; that of on_change() must not call
// back.
class Roster {
 public:
  // Replicas 0 to `replicas` - 1, of which this process is one, begin but for those that are
  // `absent`.
  Roster(std::uint32_t replicas, std::uint32_t mine, const std::set<std::uint32_t>& absent = {});

  // From outside. Ignored where it is not newer than what is known. Whoever waits here for a word
  // and is not among `members` is told that it has to leave.
  void change(std::uint32_t epoch, std::vector<std::uint32_t> members) STRAIT_EXCLUDES(mutex_);
  // Hears of every change: who is not a member any more will never answer.
  using Changed = std::function<void(const std::vector<std::uint32_t>& members)>;
  void on_change(Changed changed) STRAIT_EXCLUDES(mutex_);
  // Hears of replicas that cannot be reached and are members still.
  using Lost = std::function<void(std::uint32_t replica, const std::string& why)>;
  void on_lost(Lost lost) STRAIT_EXCLUDES(mutex_);

  std::uint32_t newest() const { return newest_; }
  // Waits for that epoch, or the one that is newer than that. net::LinkError (aborted) where this
  // process is not among its members.
  Membership of(std::uint32_t epoch) STRAIT_EXCLUDES(mutex_);
  Membership newer_than(std::uint32_t epoch) STRAIT_EXCLUDES(mutex_);

  // Whether it takes part, as far as is known.
  bool has(std::uint32_t replica) const STRAIT_EXCLUDES(mutex_);

  void lost(std::uint32_t replica, const std::string& why) STRAIT_EXCLUDES(mutex_);

 private:
  Membership membership(std::uint32_t epoch) const STRAIT_REQUIRES(mutex_);

  const std::uint32_t mine_;
  std::atomic<std::uint32_t> newest_ = 0;
  mutable Mutex mutex_;
  Condition told_;
  std::map<std::uint32_t, std::vector<std::uint32_t>> epochs_ STRAIT_GUARDED_BY(mutex_);
  Changed changed_ STRAIT_GUARDED_BY(mutex_);
  Lost lost_ STRAIT_GUARDED_BY(mutex_);
};

}  // namespace strait::sync
