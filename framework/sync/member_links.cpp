#include "framework/sync/member_links.h"

#include "framework/sync/sync_error.h"

namespace strait::sync {
namespace {

// A member can be one round ahead: it has applied the one that is in progress here.
constexpr std::uint64_t kRoundsAhead = 1;
// A wait checks this often for a new membership, and for members that wait for room here.
constexpr std::chrono::milliseconds kPollInterval{20};

void check_round(const RoundMessage& got, const RoundMessage& expected, const std::string& peer) {
  // A member in a newer epoch expects this one to follow.
  if (got.epoch > expected.epoch) return;
  if (got.round >= expected.round && got.round <= expected.round + kRoundsAhead) return;
  throw SyncError(SyncError::Kind::corrupt,
                  "{} sent a message of sync round {} (epoch {}); expected round {} (epoch {})",
                  peer, got.round, got.epoch, expected.round, expected.epoch);
}

}  // namespace

MemberLinks::MemberLinks(std::vector<std::unique_ptr<net::Link>> links, Membership membership,
                         MembershipTracker* tracker)
    : links_(std::move(links)),
      membership_(std::move(membership)),
      tracker_(tracker),
      early_(links_.size()) {}

// Repeats work that waits on a link until a deadline, and checks the membership in between.
template <class Work>
auto MemberLinks::wait_on(std::uint32_t replica, Work work) {
  struct Awaited {
    std::atomic<const net::Link*>& link;
    ~Awaited() { link = nullptr; }
  };
  // Reset when the wait ends, also by an exception: another thread shows it to the user.
  const Awaited awaited{awaited_};
  awaited_ = links_[replica]->underlying();
  try {
    while (true) {
      check_membership();
      if (auto done = work(*links_[replica], std::chrono::steady_clock::now() + kPollInterval)) {
        return done;
      }
    }
  } catch (const net::LinkError& error) {
    report(replica, error);
  }
}

void MemberLinks::send(std::size_t member, net::Frame frame) {
  wait_on(replica(member), [&](net::Link& link, auto deadline) {
    // Without drain() two members with full windows would wait for each other for ever.
    const bool sent = link.send_until(frame, deadline);
    if (!sent) drain();
    return sent;
  });
}

net::Frame MemberLinks::receive(std::size_t member, const RoundMessage& expected) {
  const std::uint32_t from = replica(member);
  std::map<RoundMessage, net::Frame>& early = early_[from];
  while (true) {
    const auto kept = early.find(expected);
    if (kept != early.end()) {
      net::Frame frame = std::move(kept->second);
      early.erase(kept);
      return frame;
    }
    accept(from, receive_next(from), expected);
  }
}

bool MemberLinks::available(std::size_t member, const RoundMessage& expected) {
  const std::uint32_t from = replica(member);
  try {
    while (!early_[from].contains(expected)) {
      // A deadline in the past: only what has already come.
      auto frame = links_[from]->receive_until(std::chrono::steady_clock::now());
      if (!frame) return false;
      accept(from, std::move(*frame), expected);
    }
    return true;
  } catch (const net::LinkError&) {
    return false;
  }
}

void MemberLinks::accept(std::uint32_t replica, net::Frame frame, const RoundMessage& expected) {
  const RoundMessage got = read_header(frame);
  if (!keep(replica, got, std::move(frame))) return;
  check_round(got, expected, links_[replica]->state().peer);
}

net::Frame MemberLinks::receive_next(std::uint32_t replica) {
  return *wait_on(replica,
                  [](net::Link& link, auto deadline) { return link.receive_until(deadline); });
}

bool MemberLinks::keep(std::uint32_t replica, const RoundMessage& header, net::Frame frame) {
  if (header.epoch < membership_.epoch) return false;
  // A frame of a newer epoch is kept: its sender has changed its members before this replica.
  if (early_[replica].emplace(header, std::move(frame)).second) return true;
  throw SyncError(SyncError::Kind::corrupt, "{} sent the same part of sync round {} twice",
                  links_[replica]->state().peer, header.round);
}

std::vector<std::uint32_t> MemberLinks::check(std::optional<std::size_t> member) {
  const net::Link* const link = member ? links_[replica(*member)].get() : nullptr;
  awaited_ = link != nullptr ? link->underlying() : nullptr;
  check_membership();
  // First: others may have ended because of it.
  if (member) receive_or_report(replica(*member));
  std::vector<std::uint32_t> interrupted;
  for (const std::uint32_t other : membership_.members) {
    if (links_[other] == nullptr) continue;
    receive_or_report(other);
    if (!links_[other]->state().connected) interrupted.push_back(other);
  }
  return interrupted;
}

void MemberLinks::receive_pending(std::uint32_t replica) {
  if (links_[replica] == nullptr) return;
  while (auto frame = links_[replica]->receive_until(std::chrono::steady_clock::now())) {
    const RoundMessage header = read_header(*frame);
    keep(replica, header, std::move(*frame));
  }
}

void MemberLinks::receive_or_report(std::uint32_t replica) {
  try {
    receive_pending(replica);
  } catch (const net::LinkError& error) {
    report(replica, error);
  }
}

void MemberLinks::regroup(const Membership& membership) {
  membership_ = membership;
  for (auto& early : early_) {
    std::erase_if(early, [&](const auto& kept) { return kept.first.epoch < membership.epoch; });
  }
}

void MemberLinks::drain() {
  for (std::uint32_t replica = 0; replica < links_.size(); ++replica) {
    try {
      receive_pending(replica);
    } catch (const net::LinkError&) {
      // Not needed now; the next call that needs this link throws its error.
    }
  }
}

void MemberLinks::check_membership() const {
  if (tracker_ == nullptr || tracker_->latest_epoch() == membership_.epoch) return;
  throw SyncError(SyncError::Kind::membership_changed,
                  "the members of the sync change; the round is abandoned");
}

void MemberLinks::report(std::uint32_t replica, const net::LinkError& error) const {
  // No membership change mends others.
  if (tracker_ == nullptr || !error.peer_gone() || ending_) throw error;
  tracker_->report_lost(replica, error.what());
  throw SyncError(SyncError::Kind::membership_changed, error.what());
}

void MemberLinks::abort(const net::LinkError& cause) {
  // Before the aborts: the engine's thread may report a link as soon as it is aborted.
  ending_ = true;
  for (const auto& link : links_) {
    if (link != nullptr) link->abort(cause);
  }
}

std::uint64_t MemberLinks::sent_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& link : links_) {
    if (link != nullptr) bytes += link->state().sent_bytes;
  }
  return bytes;
}

}  // namespace strait::sync
