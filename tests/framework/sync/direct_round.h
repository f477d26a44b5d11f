#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

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

// All replicas of a stage in one thread, without links: what the engine does, at its plainest.
// A test moves the replicas through moments, looks at them, and may damage what they told.
class DirectRound {
 public:
  using Maker = std::function<std::unique_ptr<SyncMethod>()>;
  DirectRound(const Layout& layout, std::size_t replicas, const Maker& maker);

  std::size_t size() const { return replicas_.size(); }
  DirectReplica& replica(std::size_t number) { return *replicas_[number]; }
  const Layout& layout() const { return layout_; }
  void start();  // all hold the same weights by now

  // Who takes part from now on; all at first. No round may be under way.
  void take_part(const std::vector<std::uint32_t>& members);

  // What is due lands, as the trainer has it before it makes the update of this step.
  void before_update(store::Step step);
  // Opens, exchanges and, if it is not to be late, lands what this moment asks for. Lands a late
  // round that before_update() was not asked for. Whether a round opened.
  bool pass(const Moment& moment);

  // The same in single steps. Parts are told in a random order.
  bool open(const Moment& moment);
  // All exchanges, one behind the other; `damage` is done when all of one has come, and nobody has
  // read it.
  void exchange(const std::function<void()>& damage = {});
  void land();
  void drop();  // at any place between

  bool under_way() const { return !rounds_.empty(); }
  std::vector<Round>& rounds() { return rounds_; }  // by member's place; while under way
  // What each member sent to others in the last round, by place: bytes, and frames that held them.
  const std::vector<std::uint64_t>& sent() const { return sent_; }
  const std::vector<std::uint64_t>& sent_frames() const { return sent_frames_; }
  std::uint64_t opened() const { return opened_; }  // rounds so far
  std::uint64_t landed() const { return landed_; }

 private:
  SyncMethod& method(std::size_t place);
  Slots& slots(std::size_t place);
  void tell(std::size_t place);
  void reduce(int exchange);
  void gather(int exchange);
  void swap(int exchange);
  void arrive();
  void count(std::size_t place, std::size_t bytes, std::size_t times);

  Layout layout_;
  std::vector<std::unique_ptr<DirectReplica>> replicas_;
  std::vector<std::uint32_t> members_;
  std::uint32_t epoch_ = 0;
  std::vector<Round> rounds_;
  std::vector<std::uint64_t> sent_;
  std::vector<std::uint64_t> sent_frames_;
  std::uint64_t opened_ = 0;
  std::uint64_t landed_ = 0;
};

}  // namespace strait::sync
