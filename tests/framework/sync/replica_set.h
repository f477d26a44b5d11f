#pragma once

#include "framework/sync/sync_rounds.h"
#include "tests/memory_links.h"

namespace strait::sync {

using LinkRow = std::vector<std::unique_ptr<net::Link>>;

// Links between all replicas of stage 0 in one process: by replica, then by member.
std::vector<LinkRow> replica_mesh(std::size_t replicas,
                                  std::uint64_t window_bytes = net::LinkOptions{}.window_bytes);

// A replica's part of a checkpoint: saved slots and the trainer's memory, as bytes.
using Snapshot = std::map<std::string, std::vector<std::byte>>;

// One replica with an engine of its own and a minimal trainer: plain gradient steps towards a
// target, with a gradient that becomes ready piece by piece.
class TinyReplica {
 public:
  // `from`: resumes at step `next` from this snapshot; null: from the start.
  TinyReplica(const Layout& layout, std::unique_ptr<SyncMethod> method, Membership membership,
              LinkRow links, const Snapshot* from = nullptr, store::Step next = {},
              MembershipTracker* tracker = nullptr);

  // Between steps.
  Snapshot save(store::Step steps);

  // One step, whose gradient is weights - target.
  void step(store::Step step, const std::vector<float>& target, float rate, bool leaving = false);

  const Layout& layout() const { return slots_.layout(); }
  Slots& slots() { return slots_; }
  SyncRounds& engine() { return *engine_; }

 private:
  std::vector<float> weights_;
  std::vector<float> gradient_;
  std::vector<float> first_moment_;
  std::vector<float> second_moment_;
  Slots slots_;
  std::unique_ptr<SyncRounds> engine_;
};

// Replicas in a thread each. The links of a replica that is destroyed end, so an error of one does
// not block the others.
class ReplicaSet {
 public:
  using Maker = std::function<std::unique_ptr<SyncMethod>()>;
  using Wrap = std::function<std::unique_ptr<net::Link>(std::size_t replica, std::size_t member,
                                                        std::unique_ptr<net::Link>)>;
  // `wrap`: wraps every end of a link; empty: none. `from`: by replica; empty: from the start.
  ReplicaSet(const Layout& layout, std::size_t replicas, const Maker& maker, const Wrap& wrap = {},
             const std::vector<Snapshot>& from = {}, store::Step next = {},
             std::uint64_t window_bytes = net::LinkOptions{}.window_bytes);

  std::size_t size() const { return replicas_.size(); }
  TinyReplica& replica(std::size_t number) { return *replicas_[number]; }
  void leave(std::size_t number) { replicas_[number].reset(); }

  // By replica: the message of what its thread threw; empty: nothing.
  std::vector<std::string> in_parallel(
      const std::function<void(std::size_t number, TinyReplica&)>& work);

 private:
  std::vector<std::unique_ptr<TinyReplica>> replicas_;
};

// Pieces of these many values, the first a norm, all zero at first.
Layout tiny_layout(const std::vector<std::int64_t>& sizes);

}  // namespace strait::sync
