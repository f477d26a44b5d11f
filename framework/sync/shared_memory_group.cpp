#include "framework/sync/shared_memory_group.h"

#include <algorithm>
#include <limits>
#include <thread>

#include "framework/net/link_error.h"
#include "framework/sync/sync_error.h"

namespace strait::sync {
namespace {

// Between two looks at the progress of others.
constexpr std::chrono::microseconds kPause{100};
// Another layout of the memory is another version.
constexpr const char* kLayoutVersion = "layout 1";

}  // namespace

net::SharedMemory open_memory_of(std::uint32_t replica, net::SharedMemoryKey key,
                                 std::size_t bytes) {
  try {
    return {key, bytes};
  } catch (const net::LinkError& error) {
    throw net::LinkError(
        error.kind(),
        fmt::format("replica {}: {}. Replicas that sum in shared memory run on one host, as one "
                    "user; otherwise set sync.group = \"never\"",
                    replica, error.what()));
  }
}

net::SharedMemory SharedMemoryGroup::memory_for(std::size_t values) {
  return net::SharedMemory(sizeof(Progress) + values * sizeof(float));
}

GroupHello SharedMemoryGroup::hello(const std::string& place) {
  return {.kind = "shared memory", .version = kLayoutVersion, .place = place};
}

SharedMemoryGroup::SharedMemoryGroup(std::span<float> gradient, net::SharedMemory mine,
                                     std::span<const GroupHello> hellos, Membership membership,
                                     std::span<float> weights)
    : gradient_(gradient), weights_(weights), membership_(std::move(membership)) {
  const std::size_t bytes = sizeof(Progress) + gradient.size_bytes();
  const auto open = [&](std::size_t member) {
    const auto key = net::SharedMemoryKey::parse(hellos[member].memory);
    if (!key) throw SyncError(SyncError::Kind::corrupt, "a replica sent no key of its memory");
    memories_.push_back(open_memory_of(membership_.members[member], *key, bytes));
  };
  for (std::size_t member = 0; member < membership_.mine; ++member) open(member);
  memories_.push_back(std::move(mine));
  for (std::size_t member = membership_.mine + 1; member < hellos.size(); ++member) open(member);
}

// New memory is zero, which is what the counters begin with; a token is at the begin.
SharedMemoryGroup::Progress& SharedMemoryGroup::progress(std::size_t member) const {
  return *reinterpret_cast<Progress*>(memories_[member].begin());
}

std::span<float> SharedMemoryGroup::values(std::size_t member, Range range) const {
  auto* const first = reinterpret_cast<float*>(memories_[member].begin() + sizeof(Progress));
  return within(std::span(first, gradient_.size()), range);
}

SharedMemoryGroup::Slowest SharedMemoryGroup::slowest(
    std::atomic<std::uint64_t> Progress::*count) const {
  Slowest slowest{0, std::numeric_limits<std::uint64_t>::max()};
  for (std::size_t member = 0; member < memories_.size(); ++member) {
    const std::uint64_t ranges = (progress(member).*count).load(std::memory_order_acquire);
    if (ranges < slowest.ranges) slowest = {member, ranges};
  }
  return slowest;
}

void SharedMemoryGroup::sum(Range range) {
  std::ranges::copy(within(gradient_, range), values(membership_.mine, range).begin());
  ranges_.push_back(range);
  progress(membership_.mine).written.fetch_add(1, std::memory_order_release);
  reduce();
}

void SharedMemoryGroup::reduce() {
  const std::uint64_t written = slowest(&Progress::written).ranges;
  for (; reduced_ < ranges_.size() && before_ + reduced_ < written; ++reduced_) {
    const Range own = share(ranges_[reduced_], membership_.count(), membership_.mine);
    // Into the gradient, whose share is not needed any more: all read the copies of it.
    const std::span<float> sum = within(gradient_, own);
    // In the order of the members and without a zero to begin with, as Allreduce adds them.
    std::ranges::copy(values(0, own), sum.begin());
    for (std::size_t member = 1; member < memories_.size(); ++member) {
      const std::span<const float> theirs = values(member, own);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += theirs[i];
    }
    std::ranges::copy(sum, values(membership_.mine, own).begin());
    progress(membership_.mine).reduced.fetch_add(1, std::memory_order_release);
  }
}

void SharedMemoryGroup::wait_for(std::uint64_t ranges, const WhileWaiting& while_waiting) {
  while (true) {
    reduce();
    const Slowest last = slowest(&Progress::reduced);
    if (last.ranges >= ranges) return;
    // A member that has reduced all that it could waits for contributions itself.
    const Slowest writer = slowest(&Progress::written);
    while_waiting(writer.ranges < ranges ? writer.member : last.member);
    std::this_thread::sleep_for(kPause);
  }
}

void SharedMemoryGroup::complete(const WhileWaiting& while_waiting) {
  wait_for(before_ + ranges_.size(), while_waiting);
  for (const Range& range : ranges_) {
    for (std::size_t owner = 0; owner < memories_.size(); ++owner) {
      const Range shared = share(range, membership_.count(), owner);
      std::ranges::copy(values(owner, shared), within(gradient_, shared).begin());
    }
  }
  before_ += ranges_.size();
  reduced_ = 0;
  ranges_.clear();
}

// The sums are in all gradients since every member was ready, so their memory is free. The members
// are ready again before it is written.
void SharedMemoryGroup::gather(std::span<const Part> parts, const WhileWaiting& while_waiting) {
  for (const Part& part : parts) {
    if (part.owner != membership_.mine) continue;
    std::ranges::copy(within(weights_, part.range), values(membership_.mine, part.range).begin());
  }
  // All parts count as one range, which nothing reduces.
  progress(membership_.mine).written.fetch_add(1, std::memory_order_release);
  progress(membership_.mine).reduced.fetch_add(1, std::memory_order_release);
  wait_for(++before_, while_waiting);
  for (const Part& part : parts) {
    if (part.owner == membership_.mine) continue;
    std::ranges::copy(values(part.owner, part.range), within(weights_, part.range).begin());
  }
}

}  // namespace strait::sync
