#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "framework/net/link.h"
#include "framework/sync/membership.h"

namespace strait::sync {

// What a member says before a group is made. Bytes: the header of a round's message (ROUND.md),
// then the texts in this order.
struct GroupHello {
  std::string kind = {};      // "NCCL", "shared memory"
  std::string version = {};   // of the library that sums
  std::string place = {};     // where the gradient lies: "host 0, cuda:1"
  std::string obstacle = {};  // why this member can be in no group; empty: it can
  std::string key = {};       // what the others need to reach it
  std::string memory = {};    // key of memory to sum in where that cannot be; empty: none
  std::string relay = {};     // of the first member: key of its FrameRelay; empty: none
  bool operator==(const GroupHello&) const = default;
};

net::Frame write_hello(const GroupHello& hello);
// SyncError (corrupt), fields::MessageError: the frame is not such a message.
GroupHello read_hello(std::span<const std::byte> frame);

// Sends this member's hello to all others and returns those of all, by member. The first frames of
// these links, which are by replica, null at the own number. Throws what links throw, and
// net::LinkError (lost) with the numbers of the replicas that did not answer within the limit.
std::vector<GroupHello> exchange_hellos(const GroupHello& mine, std::span<net::Link* const> links,
                                        const Membership& membership,
                                        std::chrono::milliseconds limit);

// Why these members make no group, so that their sums go over links; nullopt: they make one. The
// same on all members, since all see the same hellos. `place_each`: no two at one place. Throws
// net::LinkError (refused) if their versions differ.
std::optional<std::string> objection(std::span<const GroupHello> hellos,
                                     const Membership& membership, bool place_each);

// "replica 1", "replicas 1, 2".
std::string replicas_text(std::span<const std::uint32_t> replicas);

}  // namespace strait::sync
