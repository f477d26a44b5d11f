#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "framework/mutex.h"
#include "framework/sync/exchange.h"
#include "framework/sync/member_links.h"
#include "framework/sync/roster.h"
#include "framework/sync/slots_copy.h"
#include "framework/sync/sync_method.h"

namespace strait::sync {

// So far, of one replica.
struct SyncTraffic {
  std::uint64_t rounds = 0;      // that landed
  std::uint64_t dropped = 0;     // that came to nothing, because a replica left
  std::uint64_t sent_bytes = 0;  // as put on the wire, framing and repeats included
  double round_seconds = 0;      // from opening to the last byte, of the rounds that landed
};

// Keeps a replica with the others of its stage: opens the rounds that the method plans, exchanges
// them on a thread of its own while the trainer computes, and lands them where they are due.
//
// The trainer's thread calls everything but traffic(), in this order in every step:
//   gradient_begins, gradient_ready…, gradient_whole, [gradient_clipped,] before_update,
//   updated
// and, before anybody looks at the model between two steps, before_look. An error of the exchange
// (net::LinkError, SyncError) is thrown by the next call that needs it, and ever after.
//
// With a roster replicas may leave while a run goes. Then holds() says whether all that lands up to
// this step's update is held by everybody; no stage may land it before all stages of all replicas
// have said so, and where one of them has not, all of them regroup().
class SyncRounds {
 public:
  // `slots` and `roster` outlive the engine. Links by replica, null at the own number. No roster:
  // the members are who they are, and a link that dies is an error.
  SyncRounds(std::unique_ptr<SyncMethod> method, Slots& slots, Membership membership,
             std::vector<std::unique_ptr<net::Link>> links, Roster* roster = nullptr);
  // Ends the links where a round is under way, so that nobody waits for this replica.
  ~SyncRounds();

  const SyncMethod& method() const { return *method_; }

  // The gradient of a step starts to come in; ranges of it are whole when gradient_ready says so,
  // all of it with gradient_whole, which returns when the method has made of it what it wants, or
  // (false) when a replica has left before that.
  void gradient_begins(store::Step step);
  void gradient_ready(Range range);
  bool gradient_whole(store::Step step);
  // With a roster: waits for the exchange of what lands before this step's update, or before a look
  // at what so many steps have made, or now. False: a replica has left, and it comes to nothing.
  bool holds(store::Step step);
  bool holds_for_look(store::Step steps);
  bool holds_now();
  // From now on these take part. What was under way, a gradient's landing too, is as if it had
  // never been, and opens again among them. `passed`: all replicas have said that they hold what
  // they were last asked for here, so that stays.
  void regroup(const Membership& membership, bool passed);
  // Between steps, where nothing waits to land but what the update of the step before `next` has
  // opened: from now on these take part, one of them new. That round opens again among them.
  void welcome(const Membership& membership, store::Step next);
  // Norms are agreed on, the gradient is clipped, and the step is not skipped.
  void gradient_clipped(store::Step step);
  // The weights of this step are about to change: rounds that are due land first.
  void before_update(store::Step step);
  // They have changed (or the step was skipped). `leaving`: this was the last step before this
  // process ends; what would land in a later one is opened by whoever goes on, see go_on(). True
  // (with a roster alone): a round was opened that lands as soon as all hold it, by land_now().
  bool updated(store::Step step, bool leaving);
  void land_now();
  // `steps` are made, and the slots are about to be read or saved. A round that the last update
  // opened stays under way: its opening can be repeated from what is saved.
  void before_look(store::Step steps);
  // Slots hold what they held behind the update of the step before `next`: opens what that opened.
  void go_on(store::Step next);

  // Any thread.
  SyncTraffic traffic() const;
  // The link to the member that the exchange waits for; null: for nobody just now.
  const net::Link* awaited_link() const { return links_.awaited(); }

 private:
  bool open(const Moment& moment, std::optional<std::uint64_t> again = std::nullopt);
  bool due(store::Step step) const;
  bool held();
  void open_and_land(const Moment& moment);
  void finish_reading();
  void land();
  void exchange_rounds();
  void take_in();
  void exchange_one();
  void wait_until_ready(Range range);
  bool ready(Range range) const STRAIT_REQUIRES(mutex_);

  const std::unique_ptr<SyncMethod> method_;
  Slots& slots_;
  Membership membership_;
  Roster* const roster_;
  MemberLinks links_;

  std::optional<Round> round_;  // the exchange's between open() and exchanged_
  std::uint64_t opened_ = 0;    // rounds so far
  // What the step's gradients and their method's state were before their round landed, and that
  // round; until the step is agreed on.
  SlotsCopy before_landing_;
  Moment landed_at_;
  std::uint64_t landed_ = 0;
  bool asked_for_ = false;  // whether all hold the round that is under way

  mutable Mutex mutex_;
  Condition changed_;
  bool requested_ STRAIT_GUARDED_BY(mutex_) = false;
  bool read_ STRAIT_GUARDED_BY(mutex_) = true;
  bool exchanged_ STRAIT_GUARDED_BY(mutex_) = true;
  bool parted_ STRAIT_GUARDED_BY(mutex_) = false;  // the last exchange came to nothing
  bool closing_ STRAIT_GUARDED_BY(mutex_) = false;
  bool all_ready_ STRAIT_GUARDED_BY(mutex_) = true;
  std::vector<Range> ready_ STRAIT_GUARDED_BY(mutex_);
  std::exception_ptr error_ STRAIT_GUARDED_BY(mutex_);
  SyncTraffic traffic_ STRAIT_GUARDED_BY(mutex_);
  std::chrono::steady_clock::time_point opened_at_ STRAIT_GUARDED_BY(mutex_);
  double round_seconds_ STRAIT_GUARDED_BY(mutex_) = 0;  // of the last exchange

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace strait::sync
