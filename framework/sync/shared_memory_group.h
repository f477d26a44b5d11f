#pragma once

#include <atomic>

#include "framework/file_descriptor.h"
#include "framework/sync/membership.h"
#include "framework/sync/replica_group.h"

namespace strait::sync {

// Where another process of the host finds memory, and what is at its begin then.
struct SharedMemoryKey {
  int process = 0;
  int descriptor = 0;
  std::uint64_t token = 0;

  std::string text() const;
  // std::nullopt: the text is no key.
  static std::optional<SharedMemoryKey> parse(const std::string& text);
};

// Memory that another process of this host and user can open by its key. It goes with the last
// process that has it open.
class SharedMemory {
 public:
  // std::system_error if there is none.
  explicit SharedMemory(std::size_t bytes);
  // net::LinkError (refused) with the replica whose memory cannot be opened, or is not that large.
  SharedMemory(SharedMemoryKey key, std::size_t bytes, std::uint32_t replica);
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  SharedMemoryKey key() const;
  std::byte* begin() const { return begin_; }

 private:
  void map();

  std::uint64_t& token() const;

  FileDescriptor descriptor_;
  std::byte* begin_ = nullptr;
  std::size_t bytes_ = 0;
};

// A group of replicas on the CPUs of one host. Each copies its gradient into memory of its own, the
// owner of a share sums what all have there, in the order of the replicas, and all copy the sums.
// So it computes the same bits as Allreduce over links.
class SharedMemoryGroup final : public ReplicaGroup {
 public:
  // The memory of this member, whose key its hello has.
  static SharedMemory memory_for(std::size_t values);
  static GroupHello hello(const std::string& place);

  // `gradient` outlives the group; `hellos`: of all members.
  SharedMemoryGroup(std::span<float> gradient, SharedMemory mine,
                    std::span<const GroupHello> hellos, Membership membership);

  std::string name() const override { return "shared memory"; }
  void sum(Range range) override;
  void complete(const WhileWaiting& while_waiting) override;

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

  const std::span<float> gradient_;
  const Membership membership_;
  std::vector<SharedMemory> memories_;  // by member
  std::vector<Range> ranges_;           // of this round
  std::uint64_t before_ = 0;            // ranges of former rounds
  std::size_t reduced_ = 0;             // of ranges_
};

}  // namespace strait::sync
