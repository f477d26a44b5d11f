#include "framework/sync/exchange.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "framework/sync/model_look.h"
#include "framework/sync/sync_error.h"

namespace strait::sync {
namespace {

std::span<const std::byte> body(const net::Frame& frame) {
  return std::span<const std::byte>(frame).subspan(kRoundMessageBytes);
}

net::Frame body_of(const net::Frame& frame) {
  const std::span<const std::byte> bytes = body(frame);
  return {bytes.begin(), bytes.end()};
}

// One round on its way: the arguments of run_exchange, so that its steps need not hand them on.
class RoundOnTheWay {
 public:
  RoundOnTheWay(Round& round, SyncMethod& method, const Slots& slots, MemberLinks& links,
                const ExchangeHooks& hooks)
      : round_(round), method_(method), slots_(slots), links_(links), hooks_(hooks) {}

  void shard_reduce();
  void gather_all();
  void pair();
  void agree_that_all_hold_it();

 private:
  RoundMessage head(RoundMessage::Kind kind, const Part& part) const {
    return {kind, static_cast<std::uint8_t>(round_.exchange), round_.membership.epoch, round_.id,
            part.index};
  }
  Round::Exchange& exchange() { return round_.exchanges.back(); }
  std::size_t mine() const { return round_.membership.mine; }
  bool last() const { return round_.exchange + 1 == round_.plan.exchanges; }

  net::Frame tell(const Part& part);
  void told_all() {
    if (last()) hooks_.all_told();
  }
  void send_to_others(const net::Frame& frame);
  bool takes_part(std::size_t member) const {
    const bool in_pairs = round_.plan.pattern == Pattern::pair;
    return member != mine() && (!in_pairs || member == round_.plan.partner);
  }
  bool all_have_told(const Part& part);
  void fold_own(const Part& part);

  Round& round_;
  SyncMethod& method_;
  const Slots& slots_;
  MemberLinks& links_;
  const ExchangeHooks& hooks_;
};

net::Frame RoundOnTheWay::tell(const Part& part) {
  if (round_.exchange == 0) hooks_.wait_until_ready(part.range);
  net::Frame frame = start_frame(head(RoundMessage::Kind::told, part));
  method_.tell(round_, part, slots_, frame);
  exchange().mine[part.index] = body_of(frame);
  return frame;
}

void RoundOnTheWay::send_to_others(const net::Frame& frame) {
  for (std::size_t member = 0; member < links_.count(); ++member) {
    if (takes_part(member)) links_.send(member, frame);
  }
}

// Parts are folded in their order, each when all have told it: while there is something left to
// tell nobody waits for others, who may be far away.
void RoundOnTheWay::shard_reduce() {
  std::size_t folded = 0;
  for (std::size_t i = 0; i < round_.parts.size(); ++i) {
    const Part& part = round_.parts[i];
    net::Frame frame = tell(part);
    if (part.owner != mine()) links_.send(part.owner, std::move(frame));
    while (folded <= i && all_have_told(round_.parts[folded])) fold_own(round_.parts[folded++]);
  }
  told_all();
  while (folded < round_.parts.size()) fold_own(round_.parts[folded++]);
  for (const Part& part : round_.parts) {
    if (part.owner == mine()) continue;
    const net::Frame frame = links_.take(part.owner, head(RoundMessage::Kind::agreed, part));
    exchange().agreed[part.index] = body_of(frame);
    method_.arrived(round_, part, slots_);
  }
}

// To whoever owns it; of another's part there is nothing to wait for.
bool RoundOnTheWay::all_have_told(const Part& part) {
  if (part.owner != mine()) return true;
  for (std::size_t member = 0; member < links_.count(); ++member) {
    if (member == mine()) continue;
    if (!links_.there(member, head(RoundMessage::Kind::told, part))) return false;
  }
  return true;
}

void RoundOnTheWay::fold_own(const Part& part) {
  if (part.owner != mine()) return;
  std::vector<net::Frame> frames(round_.membership.count());
  std::vector<std::span<const std::byte>> told;
  for (std::size_t member = 0; member < frames.size(); ++member) {
    if (member == mine()) {
      told.emplace_back(exchange().mine[part.index]);
      continue;
    }
    frames[member] = links_.take(member, head(RoundMessage::Kind::told, part));
    told.push_back(body(frames[member]));
  }
  net::Frame frame = start_frame(head(RoundMessage::Kind::agreed, part));
  method_.fold(round_, part, told, slots_, frame);
  send_to_others(frame);
  exchange().agreed[part.index] = body_of(frame);
  method_.arrived(round_, part, slots_);
}

void RoundOnTheWay::gather_all() {
  for (const Part& part : round_.parts) send_to_others(tell(part));
  told_all();
  exchange().theirs.resize(round_.parts.size());
  for (const Part& part : round_.parts) {
    for (std::size_t member = 0; member < round_.membership.count(); ++member) {
      exchange().theirs[part.index].push_back(
          member == mine() ? exchange().mine[part.index]
                           : body_of(links_.take(member, head(RoundMessage::Kind::told, part))));
    }
    method_.arrived(round_, part, slots_);
  }
}

void RoundOnTheWay::pair() {
  const std::size_t partner = round_.plan.partner;
  for (const Part& part : round_.parts) send_to_others(tell(part));
  told_all();
  exchange().theirs.resize(round_.parts.size());
  for (const Part& part : round_.parts) {
    if (partner != mine()) {
      exchange().theirs[part.index].push_back(
          body_of(links_.take(partner, head(RoundMessage::Kind::told, part))));
    }
    method_.arrived(round_, part, slots_);
  }
}

void RoundOnTheWay::agree_that_all_hold_it() {
  RoundMessage held = head(RoundMessage::Kind::held, Part{});
  held.exchange = 0;
  ModelLook look;
  if (method_.agrees()) look = look_at_model(slots_, method_.model_slot(), round_.id);
  net::Frame frame = start_frame(held);
  append_look(look, frame);
  send_to_others(frame);
  for (std::size_t member = 0; member < links_.count(); ++member) {
    if (!takes_part(member)) continue;
    const net::Frame theirs = links_.take(member, held);
    const std::vector<std::string> names =
        differences(slots_.layout(), look, read_look(body(theirs)));
    if (names.empty()) continue;
    throw SyncError(
        SyncError::Kind::fork,
        fmt::format("replicas {} and {} hold different bits of {} before step {}: their states "
                    "have forked; resume from the last checkpoint",
                    round_.membership.members[mine()], round_.membership.members[member],
                    fmt::join(names, ", "), store::number(round_.opened.step)));
  }
}

}  // namespace

void run_exchange(Round& round, SyncMethod& method, const Slots& slots, MemberLinks& links,
                  const ExchangeHooks& hooks) {
  RoundOnTheWay on_the_way(round, method, slots, links, hooks);
  for (round.exchange = 0; round.exchange < round.plan.exchanges; ++round.exchange) {
    Round::Exchange& exchange = round.exchanges.emplace_back();
    exchange.mine.resize(round.parts.size());
    exchange.agreed.resize(round.parts.size());
    switch (round.plan.pattern) {
      case Pattern::shard_reduce:
        on_the_way.shard_reduce();
        break;
      case Pattern::gather_all:
        on_the_way.gather_all();
        break;
      case Pattern::pair:
        on_the_way.pair();
        break;
    }
  }
  on_the_way.agree_that_all_hold_it();
}

}  // namespace strait::sync
