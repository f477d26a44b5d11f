#include "framework/sync/membership.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "framework/net/link_error.h"

namespace strait::sync {

ReplicaGroups separate_replicas(std::size_t replicas) {
  ReplicaGroups groups;
  for (std::uint32_t i = 0; i < replicas; ++i) groups.push_back({i});
  return groups;
}

Membership group_of(const ReplicaGroups& groups, std::uint32_t replica) {
  Membership own;
  own.members = groups.at(leaders_of(groups, replica).mine);
  own.mine =
      static_cast<std::size_t>(std::ranges::find(own.members, replica) - own.members.begin());
  return own;
}

Membership leaders_of(const ReplicaGroups& groups, std::uint32_t replica) {
  Membership leaders;
  for (const std::vector<std::uint32_t>& group : groups) {
    if (std::ranges::find(group, replica) != group.end()) leaders.mine = leaders.count();
    leaders.members.push_back(group.front());
  }
  return leaders;
}

std::string groups_text(const ReplicaGroups& groups) {
  std::vector<std::string> texts;
  for (const std::vector<std::uint32_t>& group : groups) {
    texts.push_back(fmt::format("{}", fmt::join(group, ", ")));
  }
  return fmt::format("{}", fmt::join(texts, " | "));
}

std::uint32_t rejoin_sender(const Membership& members, const Rejoin& rejoin) {
  return *std::ranges::find_if(members.members,
                               [&](std::uint32_t one) { return one != rejoin.replica; });
}

MembershipTracker::MembershipTracker(std::uint32_t replicas, std::uint32_t mine,
                                     const std::set<std::uint32_t>& absent)
    : mine_(mine) {
  std::vector<std::uint32_t> initial(replicas);
  std::iota(initial.begin(), initial.end(), 0U);
  std::erase_if(initial, [&](std::uint32_t one) { return absent.contains(one); });
  epochs_.emplace(0, std::move(initial));
}

void MembershipTracker::update(std::uint32_t epoch, std::vector<std::uint32_t> members) {
  {
    const MutexLock lock(mutex_);
    if (epoch <= latest_epoch_) return;
    std::ranges::sort(members);
    const auto& known = epochs_.emplace(epoch, std::move(members)).first->second;
    // Set after the entry of the map exists: a thread may read the new epoch without the lock, and
    // then looks up its members with the lock.
    latest_epoch_ = epoch;
    // Under the lock, so that callbacks come in the order of the epochs.
    if (changed_) changed_(known);
  }
  updated_.notify_all();
}

void MembershipTracker::on_change(Changed changed) {
  const MutexLock lock(mutex_);
  changed_ = std::move(changed);
  // An update that came before the callback was set must not be missed.
  if (changed_ && latest_epoch_ > 0) changed_(epochs_.at(latest_epoch_));
}

void MembershipTracker::on_lost(Lost lost) {
  const MutexLock lock(mutex_);
  lost_ = std::move(lost);
}

Membership MembershipTracker::membership(std::uint32_t epoch) const {
  Membership found{epoch, epochs_.at(epoch), 0};
  const auto own = std::ranges::find(found.members, mine_);
  if (own == found.members.end()) {
    throw net::LinkError(
        net::LinkError::Kind::aborted,
        fmt::format("replica {} was evicted: it is not a member of epoch {}", mine_, epoch));
  }
  found.mine = static_cast<std::size_t>(own - found.members.begin());
  return found;
}

Membership MembershipTracker::wait_for(std::uint32_t epoch) {
  const MutexLock lock(mutex_);
  while (!epochs_.contains(epoch)) {
    // No replica can have agreed on an epoch that was skipped.
    if (latest_epoch_ > epoch) return membership(latest_epoch_);
    updated_.wait(mutex_);
  }
  return membership(epoch);
}

Membership MembershipTracker::wait_for_newer(std::uint32_t epoch) {
  const MutexLock lock(mutex_);
  while (latest_epoch_ <= epoch) updated_.wait(mutex_);
  return membership(latest_epoch_);
}

bool MembershipTracker::contains(std::uint32_t replica) const {
  const MutexLock lock(mutex_);
  return std::ranges::count(epochs_.at(latest_epoch_), replica) > 0;
}

void MembershipTracker::report_lost(std::uint32_t replica, const std::string& why) {
  Lost report;
  {
    const MutexLock lock(mutex_);
    const std::vector<std::uint32_t>& members = epochs_.at(latest_epoch_);
    if (std::ranges::find(members, replica) != members.end()) report = lost_;
  }
  // Without the lock: the callback may lead to an update.
  if (report) report(replica, why);
}

}  // namespace strait::sync
