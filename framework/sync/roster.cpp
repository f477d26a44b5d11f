#include "framework/sync/roster.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "framework/net/link_error.h"

namespace strait::sync {

Roster::Roster(std::uint32_t replicas, std::uint32_t mine, const std::set<std::uint32_t>& absent)
    : mine_(mine) {
  std::vector<std::uint32_t> beginners(replicas);
  std::iota(beginners.begin(), beginners.end(), 0U);
  std::erase_if(beginners, [&](std::uint32_t one) { return absent.contains(one); });
  epochs_.emplace(0, std::move(beginners));
}

void Roster::change(std::uint32_t epoch, std::vector<std::uint32_t> members) {
  {
    const MutexLock lock(mutex_);
    if (epoch <= newest_) return;
    std::ranges::sort(members);
    const auto& known = epochs_.emplace(epoch, std::move(members)).first->second;
    newest_ = epoch;
    if (changed_) changed_(known);
  }
  told_.notify_all();
}

void Roster::on_change(Changed changed) {
  const MutexLock lock(mutex_);
  changed_ = std::move(changed);
  if (changed_ && newest_ > 0) changed_(epochs_.at(newest_));
}

void Roster::on_lost(Lost lost) {
  const MutexLock lock(mutex_);
  lost_ = std::move(lost);
}

Membership Roster::membership(std::uint32_t epoch) const {
  Membership found{epoch, epochs_.at(epoch), 0};
  const auto place = std::ranges::find(found.members, mine_);
  if (place == found.members.end()) {
    throw net::LinkError(net::LinkError::Kind::aborted,
                         fmt::format("replica {} takes no part any more", mine_));
  }
  found.mine = static_cast<std::size_t>(place - found.members.begin());
  return found;
}

Membership Roster::of(std::uint32_t epoch) {
  const MutexLock lock(mutex_);
  while (!epochs_.contains(epoch)) {
    // One that was skipped is one that nobody can have agreed on.
    if (newest_ > epoch) return membership(newest_);
    told_.wait(mutex_);
  }
  return membership(epoch);
}

Membership Roster::newer_than(std::uint32_t epoch) {
  const MutexLock lock(mutex_);
  while (newest_ <= epoch) told_.wait(mutex_);
  return membership(newest_);
}

bool Roster::has(std::uint32_t replica) const {
  const MutexLock lock(mutex_);
  return std::ranges::count(epochs_.at(newest_), replica) > 0;
}

void Roster::lost(std::uint32_t replica, const std::string& why) {
  Lost tell;
  {
    const MutexLock lock(mutex_);
    const std::vector<std::uint32_t>& members = epochs_.at(newest_);
    if (std::ranges::find(members, replica) != members.end()) tell = lost_;
  }
  if (tell) tell(replica, why);
}

}  // namespace strait::sync
