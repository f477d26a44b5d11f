#include "framework/sync/round.h"

#include "framework/bytes.h"
#include "framework/sync/sync_error.h"

namespace strait::sync {

net::Frame start_frame(const RoundMessage& header) {
  net::Frame frame;
  append_value(frame, header);
  return frame;
}

RoundMessage read_header(std::span<const std::byte> frame) {
  ByteReader reader(frame);
  const auto header = reader.value<RoundMessage>();
  if (reader.failed()) {
    throw SyncError(SyncError::Kind::corrupt,
                    "a message between replicas has {} bytes, its header alone has {}",
                    frame.size(), kRoundMessageBytes);
  }
  const auto kind = static_cast<unsigned>(header.kind);
  if (kind < 1 || kind > 4 || header.zero != 0 || header.further_zero != 0) {
    throw SyncError(SyncError::Kind::corrupt, "a message between replicas is of unknown kind {}",
                    kind);
  }
  return header;
}

std::vector<Part> parts_of(const RoundPlan& plan, const Membership& membership) {
  std::vector<Part> parts;
  const auto add = [&](std::size_t owner, Range range) {
    parts.push_back(Part{static_cast<std::uint32_t>(parts.size()), owner, range});
  };
  for (const Range& range : plan.ranges) {
    if (!plan.owners.empty()) {
      add(plan.owners[parts.size()], range);
      continue;
    }
    // Every member sends every range itself; owners matter for shard_reduce only.
    if (plan.pattern != Pattern::shard_reduce) {
      add(membership.mine, range);
      continue;
    }
    // Empty shares are parts, too, so that all members number the parts alike.
    for (std::size_t owner = 0; owner < membership.count(); ++owner) {
      add(owner, share(range, membership.count(), owner));
    }
  }
  return parts;
}

RoundPlan plan_in_buckets(const Layout& layout, const Membership& membership, int bits) {
  RoundPlan plan;
  plan.ranges = buckets_of(layout, bucket_values(membership.count(), bits));
  return plan;
}

}  // namespace strait::sync
