#include "framework/sync/member_links.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "framework/sync/sync_error.h"

namespace strait::sync {
namespace {

// A member can be one round ahead: it has landed the one that we still work on.
constexpr std::uint64_t kRoundsAhead = 1;
// How long a wait goes on before it looks whether anybody has left, or waits for room here.
constexpr std::chrono::milliseconds kLookUp{20};

void check_place(const RoundMessage& got, const RoundMessage& expected, const std::string& peer) {
  // Whoever is in a newer epoch counts on us to follow.
  if (got.epoch > expected.epoch) return;
  if (got.round >= expected.round && got.round <= expected.round + kRoundsAhead) return;
  throw SyncError(SyncError::Kind::corrupt,
                  fmt::format("{} sent a message of sync round {} (epoch {}) where round {} (epoch "
                              "{}) is under way",
                              peer, got.round, got.epoch, expected.round, expected.epoch));
}

}  // namespace

MemberLinks::MemberLinks(std::vector<std::unique_ptr<net::Link>> links, Membership membership,
                         Roster* roster)
    : links_(std::move(links)),
      membership_(std::move(membership)),
      roster_(roster),
      early_(links_.size()) {}

// Work that may wait on a link: gets it, and a moment at which to look up.
template <class Work>
auto MemberLinks::wait_on(std::uint32_t replica, Work work) {
  struct Awaited {
    std::atomic<const net::Link*>& link;
    ~Awaited() { link = nullptr; }
  };
  const Awaited awaited{awaited_};
  awaited_ = links_[replica].get();
  try {
    while (true) {
      part();
      if (auto done = work(*links_[replica], std::chrono::steady_clock::now() + kLookUp)) {
        return done;
      }
    }
  } catch (const net::LinkError& error) {
    lose(replica, error);
  }
}

void MemberLinks::send(std::size_t member, net::Frame frame) {
  wait_on(replica(member), [&](net::Link& link, auto deadline) {
    const bool sent = link.send_until(frame, deadline);
    if (!sent) take_in();
    return sent;
  });
}

net::Frame MemberLinks::take(std::size_t member, const RoundMessage& expected) {
  const std::uint32_t from = replica(member);
  std::map<RoundMessage, net::Frame>& early = early_[from];
  while (true) {
    const auto kept = early.find(expected);
    if (kept != early.end()) {
      net::Frame frame = std::move(kept->second);
      early.erase(kept);
      return frame;
    }
    accept(from, receive(from), expected);
  }
}

bool MemberLinks::there(std::size_t member, const RoundMessage& expected) {
  const std::uint32_t from = replica(member);
  try {
    while (!early_[from].contains(expected)) {
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
  const RoundMessage got = read_head(frame);
  if (!keep(replica, got, std::move(frame))) return;
  check_place(got, expected, links_[replica]->state().peer);
}

net::Frame MemberLinks::receive(std::uint32_t replica) {
  return *wait_on(replica,
                  [](net::Link& link, auto deadline) { return link.receive_until(deadline); });
}

bool MemberLinks::keep(std::uint32_t replica, const RoundMessage& head, net::Frame frame) {
  if (head.epoch < membership_.epoch) return false;
  if (early_[replica].emplace(head, std::move(frame)).second) return true;
  throw SyncError(SyncError::Kind::corrupt,
                  fmt::format("{} sent the same part of sync round {} twice",
                              links_[replica]->state().peer, head.round));
}

void MemberLinks::regroup(const Membership& membership) {
  membership_ = membership;
  for (auto& early : early_) {
    std::erase_if(early, [&](const auto& kept) { return kept.first.epoch < membership.epoch; });
  }
}

void MemberLinks::take_in() {
  for (std::uint32_t replica = 0; replica < links_.size(); ++replica) {
    if (links_[replica] == nullptr) continue;
    try {
      while (auto frame = links_[replica]->receive_until(std::chrono::steady_clock::now())) {
        const RoundMessage head = read_head(*frame);
        keep(replica, head, std::move(*frame));
      }
    } catch (const net::LinkError&) {
      // Nobody waits for it here; who needs it next will say so.
    }
  }
}

void MemberLinks::part() const {
  if (roster_ == nullptr || roster_->newest() == membership_.epoch) return;
  throw SyncError(SyncError::Kind::parted, "who takes part in the sync is about to change");
}

void MemberLinks::lose(std::uint32_t replica, const net::LinkError& error) const {
  const bool gone =
      error.kind() == net::LinkError::Kind::lost || error.kind() == net::LinkError::Kind::aborted;
  if (roster_ == nullptr || !gone || ending_) throw error;
  roster_->lost(replica, error.what());
  throw SyncError(SyncError::Kind::parted, error.what());
}

void MemberLinks::abort(const net::LinkError& cause) {
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
