#pragma once

#include <optional>
#include <stdexcept>

#include "framework/sync/round.h"
#include "framework/sync/slots.h"

namespace strait::sync {

// The encoded contributions of all members to one part, by member index, the own one included.
using Contributions = std::span<const std::span<const std::byte>>;

// How the optimizer makes a step's update while a method is in use.
enum class UpdateRule : std::uint8_t {
  // The moments from the gradient, the weights from the moments.
  adamw,
  // The method has set the first moment, and the second is frozen: only the weights change.
  moment_given,
  // The gradient is of the replica's own rows, and the method averages weights: the update is made
  // as if the second moment were that of the mean gradient.
  own_gradient,
};

// What engine, trainer and checkpoints must know of a method before its first round.
struct MethodTraits {
  // For its own state.
  std::vector<SlotNeed> slots = {};
  // Which of the trainer's slots it reads or changes: on a GPU only these are copied to the host.
  std::vector<std::string> trainer_slots = {kWeights, kGradient, kFirstMoment, kSecondMoment};
  // The slot that holds the trained model, which evaluations, checkpoints and exports read.
  std::string model_slot = kWeights;
  bool model_is_replicated = true;  // that slot has the same bits on all after every round
  // True: the replica's gradient is its part of a sum over all replicas, to be added up at
  // Hook::gradient. False: it is a mean over the replica's own tokens, which it trains on alone.
  bool sums_gradients = false;
  // Whether every replica trains on weights of its own between rounds, and no round opens before a
  // step's update. Then each replica clips and skips by itself.
  bool trains_apart = false;
  // Whether decode() or apply() of a shard_reduce reads Round::Exchange::own. Otherwise that is
  // empty as soon as nothing else needs it, which saves as many bytes as the round sends to owners.
  bool reads_own_contribution = true;
};

// How the replicas of one stage agree on a model: when, on which coordinates and with which members
// (plan), what a replica contributes (encode), how the owner of a part combines the contributions
// (reduce), how members check and read the result (decode), and how it changes the model (apply).
// Pure arithmetic on slots: no thread, no link, no clock; the engine does the exchange.
//
// Threads: encode(), reduce() and decode() run on the engine's thread while the trainer computes;
// nothing that they read changes meanwhile, and they change no slot. apply() is the only function
// that changes slots. It runs on the trainer's thread, which waits for it; work that may go over
// all of the stage's threads uses Slots::spread(). So a round that is dropped before apply() leaves
// no trace; state that the other functions keep for apply() (a residual) is dropped with it. At
// most one round is in progress.
//
// Everything that decides the bits of the model (reduce, decode, apply) must give the same bits on
// every machine: no library whose sums depend on the processor.
class SyncMethod {
 public:
  explicit SyncMethod(MethodTraits of_method = {}) : traits(std::move(of_method)) {}
  SyncMethod(const SyncMethod&) = delete;
  SyncMethod& operator=(const SyncMethod&) = delete;
  virtual ~SyncMethod() = default;

  const MethodTraits traits;
  virtual UpdateRule update_rule(store::Step) const { return UpdateRule::adamw; }

  // Called once, when all replicas hold the same weights and no checkpoint was restored.
  virtual void start(Slots&) {}

  // The round that opens at this point; nullopt: none.
  virtual std::optional<RoundPlan> plan(const HookPoint& point, const Layout& layout,
                                        const Membership& membership) const = 0;

  // Appends this replica's contribution to a part. Called once for each part; for shard_reduce in
  // any order.
  virtual void encode(const Round& round, const Part& part, const Slots& slots,
                      net::Frame& out) = 0;
  // Called by the owner of the part: appends the result for all members. SyncError (corrupt) if a
  // contribution is malformed.
  virtual void reduce(const Round&, const Part&, Contributions, const Slots&, net::Frame&) {
    throw std::logic_error("a sync method plans shard_reduce but does not override reduce()");
  }
  // All bytes of this exchange for a part are here (also for a part that was reduced here): reads
  // what apply() needs, and refuses it. SyncError (corrupt) if the bytes are malformed.
  virtual void decode(const Round&, const Part&, const Slots&) {}
  // Every member holds all of round.exchanges. May throw SyncError before it has changed anything.
  virtual void apply(const Round& round, Slots& slots) = 0;
  // How far this replica was from the mean before the last applied round; nullopt: all are equal.
  virtual std::optional<double> distance() const { return std::nullopt; }
  virtual void drop(const Round&) {}  // the round is abandoned
};

// The sum of the contributions to a part of `count` values, which read(bytes, values) decodes. In
// the order of the members: it has the same bits wherever the part is reduced.
template <class Read>
std::vector<float> sum_of(Contributions contributions, std::size_t count, const Read& read) {
  std::vector<float> sum(count);
  std::vector<float> theirs(count);
  for (const std::span<const std::byte> bytes : contributions) {
    read(bytes, std::span(theirs));
    for (std::size_t i = 0; i < count; ++i) sum[i] += theirs[i];
  }
  return sum;
}

// How much each contribution counts in a mean: its member's share of all rows. Empty: the same.
inline std::vector<float> shares_of(const std::vector<std::int64_t>& rows,
                                    const Membership& membership) {
  if (rows.empty()) return {};
  double all = 0;
  for (const std::uint32_t replica : membership.members) all += static_cast<double>(rows[replica]);
  std::vector<float> shares;
  for (const std::uint32_t replica : membership.members) {
    shares.push_back(static_cast<float>(static_cast<double>(rows[replica]) / all));
  }
  return shares;
}

// The mean, as sum_of(), with each contribution counted by its share.
template <class Read>
std::vector<float> mean_of(Contributions contributions, std::size_t count,
                           std::span<const float> shares, const Read& read) {
  if (!shares.empty()) {
    std::size_t member = 0;
    return sum_of(contributions, count, [&](auto bytes, std::span<float> to) {
      read(bytes, to);
      const float share = shares[member++];
      for (float& value : to) value *= share;
    });
  }
  std::vector<float> mean = sum_of(contributions, count, read);
  for (float& value : mean) value /= static_cast<float>(contributions.size());
  return mean;
}

// Applies a round part by part on all of the stage's threads. Parts are independent, so the bits do
// not depend on the number of threads. `apply_part` must not throw: decode() has checked the bytes.
template <class ApplyPart>
void apply_parts(const Round& round, const Slots& slots, const ApplyPart& apply_part) {
  slots.spread(static_cast<std::int64_t>(round.parts.size()),
               [&](std::int64_t first, std::int64_t last) {
                 for (std::int64_t i = first; i < last; ++i) {
                   apply_part(round.parts[static_cast<std::size_t>(i)]);
                 }
               });
}

}  // namespace strait::sync
