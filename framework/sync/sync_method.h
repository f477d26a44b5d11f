#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "framework/sync/round.h"
#include "framework/sync/slots.h"

namespace strait::sync {

// The bytes that members told of one part, by member, the own included.
using Told = std::span<const std::span<const std::byte>>;

// What the optimizer does with a step while a method is at work.
enum class UpdateRule : std::uint8_t {
  adamw,         // moments from the gradient, weights from the moments
  moment_given,  // the first moment is agreed on and the second stays as it is: weights only
  own_gradient,  // the gradient is of the own rows alone, and the members' weights are averaged:
                 // weights as if the second moment were that of the mean gradient
};

// How the replicas of one stage keep together: when, which coordinates, whom (plan), what a replica
// tells (tell), what the server of a part makes of it (fold) and what becomes of the model (land).
// Pure arithmetic on slots: no thread, no link, no clock; the engine does the exchange.
//
// Threads: tell(), fold() and arrived() run on the engine's thread while the trainer computes;
// nothing that they read changes under them, and they change no slot. land() is the only place that
// changes slots, and runs on the trainer's thread, which stands still for it; what may go over all
// of the stage's threads goes through Slots::spread(). So a round that is dropped before it lands
// leaves no trace; what the others want to remember for land() (a residual) is dropped with it.
// At most one round is under way.
//
// Whatever decides the bits of the model (fold, land, decoding) must give the same bits on every
// machine: no library whose sums depend on the processor.
class SyncMethod {
 public:
  SyncMethod() = default;
  SyncMethod(const SyncMethod&) = delete;
  SyncMethod& operator=(const SyncMethod&) = delete;
  virtual ~SyncMethod() = default;

  virtual std::string name() const = 0;
  virtual std::vector<SlotNeed> slots() const { return {}; }
  // The slot that holds the trained model: what evaluations see, checkpoints keep and exports hold.
  virtual std::string model_slot() const { return kWeights; }
  // Whether that slot has the same bits on all members behind every round.
  virtual bool agrees() const { return true; }
  // Whether every replica's gradient is the sum's part that it has (true), to be added up at
  // Hook::gradient, or a mean over its own tokens that it trains on by itself (false).
  virtual bool sums_gradients() const { return false; }
  virtual UpdateRule update_rule(store::Step) const { return UpdateRule::adamw; }

  // Once, when all replicas hold the same weights and nothing was restored.
  virtual void start(Slots&) {}

  // What opens at this moment; nothing: no round.
  virtual std::optional<RoundPlan> plan(const Moment& moment, const Layout& layout,
                                        const Membership& membership) const = 0;

  // Appends what this replica tells of a part. For shard_reduce a part may be told in any order,
  // and is told once.
  virtual void tell(const Round& round, const Part& part, const Slots& slots, net::Frame& out) = 0;
  // At the owner of the part: appends what all members get to know. SyncError where bytes of
  // others make no sense.
  virtual void fold(const Round& round, const Part& part, Told told, const Slots& slots,
                    net::Frame& out);
  // All that this exchange brings of a part is there (of a part folded here, too): the place to
  // read what land() needs, and to refuse it. SyncError where bytes of others make no sense.
  virtual void arrived(const Round&, const Part&, const Slots&) {}
  // Every member holds all of round.exchanges. May throw SyncError before it changed anything.
  virtual void land(const Round& round, Slots& slots) = 0;
  // The round comes to nothing.
  virtual void drop(const Round&) {}
};

}  // namespace strait::sync
