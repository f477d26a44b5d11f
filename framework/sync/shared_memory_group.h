#pragma once

#include <atomic>

#include "framework/net/shared_memory.h"
#include "framework/sync/membership.h"
#include "framework/sync/replica_group.h"

namespace strait::sync {

// LinkError (refused) with the replica whose memory cannot be opened, and what to do.
net::SharedMemory open_memory_of(std::uint32_t replica, net::SharedMemoryKey key,
                                 std::size_t bytes);

// A group of replicas on the CPUs of one host. Each copies its gradient into memory of its own, the
// owner of a share sums what all have there, in the order of the replicas, and all copy the sums.
// So it computes the same bits as Allreduce over links.
class SharedMemoryGroup final : public ReplicaGroup {
 public:
  // The memory of this member, whose key its hello has.
  static net::SharedMemory memory_for(std::size_t values);
  static GroupHello hello(const std::string& place);

  // `gradient` and `weights` outlive the group; `hellos`: of all members. Without weights it cannot
  // gather().
  SharedMemoryGroup(std::span<float> gradient, net::SharedMemory mine,
                    std::span<const GroupHello> hellos, Membership membership,
                    std::span<float> weights = {});

  std::string name() const override { return "shared memory"; }
  void sum(Range range) override;
  void complete(const WhileWaiting& while_waiting) override;
  bool can_gather() const override { return !weights_.empty(); }
  void gather(std::span<const Part> parts, const WhileWaiting& while_waiting) override;

 private:
  // At the start of a member's memory; its values follow. Ranges are counted over the run.
  struct Progress {
    std::uint64_t token;                             // of SharedMemory
    alignas(64) std::atomic<std::uint64_t> written;  // its contribution is there
    alignas(64) std::atomic<std::uint64_t> reduced;  // its share holds the sum
  };
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

  Progress& progress(std::size_t member) const;
  std::span<float> values(std::size_t member, Range range) const;
  struct Slowest {
    std::size_t member = 0;
    std::uint64_t ranges = 0;
  };
  Slowest slowest(std::atomic<std::uint64_t> Progress::*count) const;
  // The own shares of ranges that all members have written.
  void reduce();
  // Until all members have reduced this many ranges; reduces meanwhile.
  void wait_for(std::uint64_t ranges, const WhileWaiting& while_waiting);

  const std::span<float> gradient_;
  const std::span<float> weights_;
  const Membership membership_;
  std::vector<net::SharedMemory> memories_;  // by member
  std::vector<Range> ranges_;                // of this round
  std::uint64_t before_ = 0;                 // ranges of former rounds
  std::size_t reduced_ = 0;                  // of ranges_
};

}  // namespace strait::sync
