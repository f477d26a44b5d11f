#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "framework/mutex.h"

namespace strait::sync {

// The replicas of a stage that take part in the sync. All of them know the same members for the
// same epoch; a change of the members is a new epoch.
struct Membership {
  std::uint32_t epoch = 0;
  std::vector<std::uint32_t> members;  // replica numbers, ascending
  std::size_t mine = 0;                // index of this process in `members`

  std::size_t count() const { return members.size(); }
  bool operator==(const Membership&) const = default;
};

// The replicas of a stage in groups that train as one, each on the rows of all of its members: a
// group sums the gradients of its members (ReplicaGroup), then is one member of the sync method.
// Members are ascending, groups too; the first member of a group is its leader.
using ReplicaGroups = std::vector<std::vector<std::uint32_t>>;

// A group of one for each replica: none sums.
ReplicaGroups separate_replicas(std::size_t replicas);
// The own group of a replica; and the leaders of all groups, that of the own one being `mine`.
Membership group_of(const ReplicaGroups& groups, std::uint32_t replica);
Membership leaders_of(const ReplicaGroups& groups, std::uint32_t replica);
// "0, 1 | 2, 3".
std::string groups_text(const ReplicaGroups& groups);

// A replica that joins a running job. It has no state and receives it from another member.
struct Rejoin {
  std::uint32_t epoch = 0;    // the first epoch in which it is a member
  std::uint32_t replica = 0;  // its number
};

// The member that sends it the state: the first one that has it.
std::uint32_t rejoin_sender(const Membership& members, const Rejoin& rejoin);

// The membership as the coordinator announces it during a run. Threads that wait for a replica
// watch it, so that they stop waiting for an evicted one. Epoch 0 is the membership at start.
//
// An announced epoch is not in force yet: replicas agree on the step from which it is.
//
// Threads: any thread may call any function. Callbacks run on the calling thread; the callback of
// on_change() must not call back.
class MembershipTracker {
 public:
  // Replicas 0 to `replicas` - 1, of which this process is one, are members of epoch 0, except for
  // those in `absent`.
  MembershipTracker(std::uint32_t replicas, std::uint32_t mine,
                    const std::set<std::uint32_t>& absent = {});

  // A new epoch. Ignored if it is not newer than the latest one. Threads that wait here in a
  // process that is no longer a member get a net::LinkError.
  void update(std::uint32_t epoch, std::vector<std::uint32_t> members) STRAIT_EXCLUDES(mutex_);

  // Called for every update: replicas that are not in `members` will never reply again.
  using Changed = std::function<void(const std::vector<std::uint32_t>& members)>;
  void on_change(Changed changed) STRAIT_EXCLUDES(mutex_);
  // Called for replicas that are unreachable but still members.
  using Lost = std::function<void(std::uint32_t replica, const std::string& why)>;
  void on_lost(Lost lost) STRAIT_EXCLUDES(mutex_);

  std::uint32_t latest_epoch() const { return latest_epoch_; }
  // Waits until this epoch is known; returns the latest one if this one was skipped. Throws
  // net::LinkError (aborted) if this process is not a member.
  Membership wait_for(std::uint32_t epoch) STRAIT_EXCLUDES(mutex_);
  // Waits for any epoch newer than this one. Throws as wait_for() does.
  Membership wait_for_newer(std::uint32_t epoch) STRAIT_EXCLUDES(mutex_);

  // Whether the replica is a member of the latest epoch.
  bool contains(std::uint32_t replica) const STRAIT_EXCLUDES(mutex_);
  // Calls the callback of on_lost() if the replica is still a member.
  void report_lost(std::uint32_t replica, const std::string& why) STRAIT_EXCLUDES(mutex_);

 private:
  Membership membership(std::uint32_t epoch) const STRAIT_REQUIRES(mutex_);

  const std::uint32_t mine_;
  std::atomic<std::uint32_t> latest_epoch_ = 0;
  mutable Mutex mutex_;
  Condition updated_;
  std::map<std::uint32_t, std::vector<std::uint32_t>> epochs_ STRAIT_GUARDED_BY(mutex_);
  Changed changed_ STRAIT_GUARDED_BY(mutex_);
  Lost lost_ STRAIT_GUARDED_BY(mutex_);
};

}  // namespace strait::sync
