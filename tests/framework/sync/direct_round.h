#pragma once

#include <memory>

#include "framework/sync/sync_method.h"

namespace strait::sync {

// A replica of a stage: memory that a trainer would have, and a method.
struct DirectReplica {
  DirectReplica(const Layout& layout, std::unique_ptr<SyncMethod> made);

  std::vector<float> weights;
  std::vector<float> gradient;
  std::vector<float> first_moment;
  std::vector<float> second_moment;
  std::unique_ptr<SyncMethod> method;
  Slots slots;  // over the vectors above
};

// All replicas of a stage in one thread, without links: a minimal engine. A test passes moments,
// reads the replicas, and may damage what they send.
class DirectRound {
 public:
  using Maker = std::function<std::unique_ptr<SyncMethod>()>;
  DirectRound(const Layout& layout, std::size_t replicas, const Maker& maker);

  std::size_t size() const { return replicas_.size(); }
  DirectReplica& replica(std::size_t number) { return *replicas_[number]; }
  const Layout& layout() const { return layout_; }
  void start();  // when all hold the same weights

  // Changes the members; all replicas at first. No round may be in progress.
  void set_members(const std::vector<std::uint32_t>& members);

  // Applies a round that is due, as the trainer does before the update of this step.
  void before_update(store::Step step);
  // Opens, exchanges and, if it is not late, applies the round of this moment. Applies a late round
  // that is due first. Whether a round opened.
  bool pass(const HookPoint& point);

  // The same in single steps. Parts are encoded in a random order.
  bool open(const HookPoint& point);
  // All exchanges, one after the other; calls `damage` when all bytes of one have come and none is
  // decoded.
  void exchange(const std::function<void()>& damage = {});
  void apply();
  void drop();  // at any time between

  bool in_progress() const { return !rounds_.empty(); }
  std::vector<Round>& rounds() { return rounds_; }  // by member index; while in progress
  // What each member sent to others in the last round, by member index: bytes, and frames.
  const std::vector<std::uint64_t>& sent() const { return sent_; }
  const std::vector<std::uint64_t>& sent_frames() const { return sent_frames_; }
  std::uint64_t opened() const { return opened_; }  // rounds so far
  std::uint64_t applied() const { return applied_; }

 private:
  SyncMethod& method(std::size_t member);
  Slots& slots(std::size_t member);
  void encode(std::size_t member);
  void reduce(int exchange);
  void gather(int exchange);
  void swap(int exchange);
  void decode();
  void count(std::size_t member, std::size_t bytes, std::size_t times);

  Layout layout_;
  std::vector<std::unique_ptr<DirectReplica>> replicas_;
  std::vector<std::uint32_t> members_;
  std::uint32_t epoch_ = 0;
  std::vector<Round> rounds_;
  std::vector<std::uint64_t> sent_;
  std::vector<std::uint64_t> sent_frames_;
  std::uint64_t opened_ = 0;
  std::uint64_t applied_ = 0;
};

}  // namespace strait::sync
