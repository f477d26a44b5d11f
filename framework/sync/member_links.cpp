#include "framework/sync/member_links.h"

#include <fmt/format.h>

#include <utility>

#include "framework/sync/sync_error.h"

namespace strait::sync {
namespace {

// A member can be one round ahead: it has landed the one that we still work on.
constexpr std::uint64_t kRoundsAhead = 1;

void check_place(const RoundMessage& got, const RoundMessage& expected, const std::string& peer) {
  const bool past = got.round < expected.round || got.epoch < expected.epoch;
  if (!past && got.round <= expected.round + kRoundsAhead) return;
  throw SyncError(SyncError::Kind::corrupt,
                  fmt::format("{} sent a message of sync round {} (epoch {}) where round {} (epoch "
                              "{}) is under way",
                              peer, got.round, got.epoch, expected.round, expected.epoch));
}

}  // namespace

void MemberLinks::send(std::size_t member, net::Frame frame) {
  links_[member]->send(std::move(frame));
}

net::Frame MemberLinks::take(std::size_t member, const RoundMessage& expected) {
  std::map<RoundMessage, net::Frame>& early = early_[member];
  const auto kept = early.find(expected);
  if (kept != early.end()) {
    net::Frame frame = std::move(kept->second);
    early.erase(kept);
    return frame;
  }
  while (true) {
    awaited_ = links_[member].get();
    net::Frame frame = links_[member]->receive();
    awaited_ = nullptr;
    const RoundMessage got = read_head(frame);
    if (got == expected) return frame;
    check_place(got, expected, links_[member]->state().peer);
    if (!early.emplace(got, std::move(frame)).second) {
      throw SyncError(SyncError::Kind::corrupt,
                      fmt::format("{} sent the same part of sync round {} twice",
                                  links_[member]->state().peer, got.round));
    }
  }
}

void MemberLinks::abort(const net::LinkError& cause) {
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
