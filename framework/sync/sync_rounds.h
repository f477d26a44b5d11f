#pragma once

#include <exception>
#include <thread>

#include "framework/mutex.h"
#include "framework/sync/exchange.h"
#include "framework/sync/layout.h"
#include "framework/sync/member_links.h"
#include "framework/sync/sync_method.h"

namespace strait::sync {

// Totals of one replica.
struct SyncTraffic {
  std::uint64_t rounds = 0;      // applied
  std::uint64_t dropped = 0;     // abandoned because a replica left
  std::uint64_t sent_bytes = 0;  // on the wire, with framing and retransmissions
  double round_seconds = 0;      // of applied rounds, from opening to the last byte
  std::chrono::steady_clock::time_point opened{};     // the latest of these
  std::chrono::steady_clock::time_point exchanged{};  // its last byte
  std::optional<double> distance = {};                // of that round: SyncMethod::distance()
};

// The engine: opens the rounds that the method plans, exchanges them on a thread of its own while
// the trainer computes, and applies them when they are due.
//
// The trainer's thread calls everything but traffic() and awaited_link(), in every step as follows:
//   gradient_begins, gradient_ready…, gradient_whole, [gradient_clipped,] before_update, updated
// and before_model_read before the model is read between two steps. An error of the exchange
// (net::LinkError, SyncError) is thrown by the next call that needs the exchange, and by all later
// ones.
//
// With a membership tracker replicas may leave during a run. Then no stage may apply a round before
// all stages of all replicas have reported that they hold it (round_complete). If one of them does
// not hold it, all of them regroup().
class SyncRounds {
 public:
  // `slots` and `tracker` outlive the engine. Links by replica, null at the own number. Without a
  // tracker the members never change, and a dead link is an error.
  SyncRounds(std::unique_ptr<SyncMethod> method, Slots& slots, Membership membership,
             std::vector<std::unique_ptr<net::Link>> links, MembershipTracker* tracker = nullptr,
             GroupRounds grouped = {});
  // Aborts the links if a round is in progress, so that no member waits for this replica.
  ~SyncRounds();

  const SyncMethod& method() const { return *method_; }

  // The gradient of a step begins to arrive. gradient_ready() marks ranges as complete,
  // gradient_whole() all of it.
  void gradient_begins(store::Step step);
  void gradient_ready(Range range);
  // Returns when the round of this gradient is applied, or false if a replica has left before that.
  bool gradient_whole(store::Step step);
  // After a read of what was computed from it: throws if a group's sums have failed meanwhile.
  void check_sums() const;

  // With a tracker: waits for the exchange of the round that is applied before this step's update,
  // before a read of the model after `step` steps, or now. False: a replica has left, and the
  // round is abandoned.
  bool round_complete(store::Step step);
  bool round_complete_before_read(store::Step steps);
  bool round_complete_now();

  // Changes the members. The round in progress, or a gradient's round that was just applied, is
  // undone and opens again among the new members. `passed`: all replicas have reported that they
  // hold the round that they were last asked for, so it stays.
  void regroup(const Membership& membership, bool passed);
  // Changes the members between steps, when one of them has rejoined. Only a round that the update
  // of the step before `next` has opened may be in progress; it opens again among the new members.
  void rejoin(const Membership& membership, store::Step next);

  // Norms are agreed on, the gradient is clipped, and the step is not skipped.
  void gradient_clipped(store::Step step);
  // The weights of this step are about to change: applies a round that is due.
  void before_update(store::Step step);
  // The weights have changed, or the step was skipped. `leaving`: this process ends after it, so a
  // round that is applied in a later step is left to resume() of the next process. True (only with
  // a tracker): a round was opened that apply_now() applies as soon as all replicas hold it.
  bool updated(store::Step step, bool leaving);
  void apply_now();

  // `steps` are made, and the slots are about to be read or saved. A round that the last update
  // opened stays in progress: saved slots are enough to open it again.
  void before_model_read(store::Step steps);
  // The slots are those after the update of the step before `next`: opens its round again.
  void resume(store::Step next);

  // A round is open; the number of that, or of the next one; how often slots have changed so far.
  bool in_progress() const { return round_.has_value(); }
  std::uint64_t number() const { return round_ ? round_->id : opened_; }
  std::uint64_t changes() const { return changes_; }

  SyncTraffic traffic() const;  // any thread
  // Any thread. The link to the member that the exchange waits for; null: none.
  const net::Link* awaited_link() const { return links_.awaited(); }

 private:
  bool open(const HookPoint& point, std::optional<std::uint64_t> again = std::nullopt);
  bool due(store::Step step) const;
  bool wait_for_exchange();
  void open_and_apply(const HookPoint& point);
  void finish_reading();
  void apply();
  void restore();

  void exchange_rounds();
  void drain();
  void exchange_one();
  void watch_sums();
  WhileWaiting while_waiting();
  static net::LinkError leaving();
  void wait_until_ready(Range range);

  const std::unique_ptr<SyncMethod> method_;
  Slots& slots_;
  Membership membership_;
  MembershipTracker* const tracker_;
  const GroupRounds grouped_;
  MemberLinks links_;

  std::optional<Round> round_;  // the engine's thread owns it from open() until exchanged_
  std::uint64_t opened_ = 0;    // rounds so far
  // The slots before a gradient's round was applied, until the step is agreed on.
  SlotsSnapshot before_applied_;
  // When that round opened, and its id.
  HookPoint applied_at_;
  std::uint64_t applied_ = 0;
  std::uint64_t changes_ = 0;
  bool asked_for_ = false;  // round_complete was asked for the round in progress

  mutable Mutex mutex_;
  Condition changed_;
  bool requested_ STRAIT_GUARDED_BY(mutex_) = false;  // open() has a round for the thread
  bool read_ STRAIT_GUARDED_BY(mutex_) = true;        // the exchange has read the slots
  bool exchanged_ STRAIT_GUARDED_BY(mutex_) = true;   // no exchange is in progress
  bool abandoned_ STRAIT_GUARDED_BY(mutex_) = false;  // the last exchange was
  bool closing_ STRAIT_GUARDED_BY(mutex_) = false;
  ReadyRanges ready_ STRAIT_GUARDED_BY(mutex_);  // of the gradient
  std::exception_ptr error_ STRAIT_GUARDED_BY(mutex_);
  SyncTraffic traffic_ STRAIT_GUARDED_BY(mutex_);
  std::chrono::steady_clock::time_point opened_at_ STRAIT_GUARDED_BY(mutex_);
  std::chrono::steady_clock::time_point exchanged_at_ STRAIT_GUARDED_BY(mutex_);

  std::thread thread_;  // last: it uses all members above
};

}  // namespace strait::sync
