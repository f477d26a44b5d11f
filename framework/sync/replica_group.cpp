#include "framework/sync/replica_group.h"

#include <fmt/ranges.h>

#include "framework/fields/byte_fields.h"
#include "framework/sync/round.h"
#include "framework/sync/sync_error.h"

namespace strait::sync {
namespace {

constexpr RoundMessage kHello{.kind = RoundMessage::Kind::hello};

}  // namespace

void describe(auto& f, fields::Is<GroupHello> auto& m) {
  f("kind", m.kind), f("version", m.version), f("place", m.place), f("obstacle", m.obstacle);
  f("key", m.key), f("memory", m.memory), f("relay", m.relay);
}

void ReplicaGroup::gather(std::span<const Part>, const WhileWaiting&) {
  throw std::logic_error("a group that cannot gather weights was asked to");
}

std::string replicas_text(std::span<const std::uint32_t> replicas) {
  return fmt::format("{} {}", replicas.size() == 1 ? "replica" : "replicas",
                     fmt::join(replicas, ", "));
}

net::Frame write_hello(const GroupHello& hello) {
  net::Frame frame = start_frame(kHello);
  fields::BytesWriter writer(frame);
  describe(writer, hello);
  return frame;
}

GroupHello read_hello(std::span<const std::byte> frame) {
  if (read_header(frame) != kHello) {
    throw SyncError(SyncError::Kind::corrupt, "the first message of a replica is not its hello");
  }
  return fields::from_bytes<GroupHello>(frame.subspan(kRoundMessageBytes), "hello of a replica");
}

std::vector<GroupHello> exchange_hellos(const GroupHello& mine, std::span<net::Link* const> links,
                                        const Membership& membership,
                                        std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  std::vector<std::uint32_t> missing;
  // All send before any receives, so that no order of members can deadlock.
  for (std::size_t member = 0; member < membership.count(); ++member) {
    if (member == membership.mine) continue;
    net::Frame frame = write_hello(mine);
    // No room in a window that nothing was sent into yet: its link is not connected.
    if (!links[membership.members[member]]->send_until(frame, deadline)) {
      missing.push_back(membership.members[member]);
    }
  }
  std::vector<GroupHello> hellos(membership.count());
  hellos[membership.mine] = mine;
  for (std::size_t member = 0; member < membership.count() && missing.empty(); ++member) {
    if (member == membership.mine) continue;
    const std::uint32_t replica = membership.members[member];
    const auto frame = links[replica]->receive_until(deadline);
    if (frame) {
      hellos[member] = read_hello(*frame);
    } else {
      missing.push_back(replica);
    }
  }
  if (missing.empty()) return hellos;
  throw net::LinkError(
      net::LinkError::Kind::lost,
      fmt::format("{} did not join the group of replicas that sums gradients within {:.1f} s",
                  replicas_text(missing), std::chrono::duration<double>(limit).count()));
}

std::optional<std::string> objection(std::span<const GroupHello> hellos,
                                     const Membership& membership, bool place_each) {
  const GroupHello& first = hellos.front();
  for (std::size_t i = 0; i < hellos.size(); ++i) {
    const GroupHello& hello = hellos[i];
    const std::uint32_t replica = membership.members[i];
    // Every member compares the same list in the same order, so all come to the same decision.
    if (!hello.obstacle.empty()) {
      return fmt::format("replica {} ({}): {}", replica, hello.place, hello.obstacle);
    }
    if (hello.kind != first.kind) {
      return fmt::format("replica {} ({}) would use {}, replica {} ({}) {}",
                         membership.members.front(), first.place, first.kind, replica, hello.place,
                         hello.kind);
    }
    for (std::size_t j = 0; place_each && j < i; ++j) {
      if (hello.place != hellos[j].place) continue;
      return fmt::format("replicas {} and {} share {}, and {} needs a device for each",
                         membership.members[j], replica, hello.place, hello.kind);
    }
  }
  for (std::size_t i = 1; i < hellos.size(); ++i) {
    if (hellos[i].version == first.version) continue;
    throw net::LinkError(
        net::LinkError::Kind::refused,
        fmt::format("replica {} ({}) has {} {} and replica {} ({}) has {}; install the same "
                    "version for all replicas, or set sync.group = \"never\"",
                    membership.members.front(), first.place, first.kind, first.version,
                    membership.members[i], hellos[i].place, hellos[i].version));
  }
  return std::nullopt;
}

}  // namespace strait::sync
