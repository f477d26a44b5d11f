#include "framework/sync/exchange.h"

#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "framework/sync/sync_error.h"

namespace strait::sync {

namespace {

// A round hashes about a megabyte of values, so that its cost does not grow with the model.
constexpr std::int64_t kValuesAtOnce = std::int64_t{1} << 18;
// Pieces of a round, about: each one's entry takes bytes on the wire, of which rounds of small
// models have few.
constexpr std::int64_t kPiecesAtOnce = 8;
// All pieces are hashed within this many rounds, however large the model is.
constexpr std::int64_t kMostShares = 64;
constexpr std::size_t kEntryBytes = sizeof(std::uint32_t) + sizeof(std::uint64_t);

std::span<const std::byte> body(const net::Frame& frame) {
  return std::span<const std::byte>(frame).subspan(kRoundMessageBytes);
}

net::Frame body_of(const net::Frame& frame) {
  const std::span<const std::byte> bytes = body(frame);
  return {bytes.begin(), bytes.end()};
}

// The arguments of run_exchange, which all of its steps need.
class RoundInProgress {
 public:
  RoundInProgress(Round& round, SyncMethod& method, const Slots& slots, MemberLinks& links,
                  const ExchangeHooks& hooks)
      : round_(round),
        method_(method),
        slots_(slots),
        links_(links),
        hooks_(hooks),
        keeps_own_(round.plan.pattern != Pattern::shard_reduce ||
                   method.traits.reads_own_contribution) {}

  void shard_reduce();
  void gather_all();
  void pair();
  void sum_in_group();
  void gather_in_group();
  void confirm_ready();

 private:
  RoundMessage header(RoundMessage::Kind kind, const Part& part) const {
    return {.kind = kind,
            .exchange = static_cast<std::uint8_t>(round_.exchange),
            .epoch = round_.membership.epoch,
            .round = round_.id,
            .part = part.index};
  }
  Round::Exchange& exchange() { return round_.exchanges.back(); }
  std::size_t mine() const { return round_.membership.mine; }
  bool last() const { return round_.exchange + 1 == round_.plan.exchanges; }

  net::Frame encode(const Part& part);
  void all_encoded() {
    if (last()) hooks_.all_encoded();
  }
  void send_to_peers(const net::Frame& frame);
  // Whether this replica exchanges with the member in this round.
  bool is_peer(std::size_t member) const {
    const bool in_pairs = round_.plan.pattern == Pattern::pair;
    return member != mine() && (!in_pairs || member == round_.plan.partner);
  }
  bool all_contributions_are_here(const Part& part);
  void reduce_own(const Part& part);

  Round& round_;
  SyncMethod& method_;
  const Slots& slots_;
  MemberLinks& links_;
  const ExchangeHooks& hooks_;
  const bool keeps_own_;
};

net::Frame RoundInProgress::encode(const Part& part) {
  // Later exchanges encode results of the first one, for which the whole gradient was there.
  if (round_.exchange == 0) hooks_.wait_until_ready(part.range);
  net::Frame frame = start_frame(header(RoundMessage::Kind::contribution, part));
  method_.encode(round_, part, slots_, frame);
  if (keeps_own_ || part.owner == mine()) exchange().own[part.index] = body_of(frame);
  return frame;
}

void RoundInProgress::send_to_peers(const net::Frame& frame) {
  for (std::size_t member = 0; member < links_.count(); ++member) {
    if (is_peer(member)) links_.send(member, frame);
  }
}

// Parts are reduced in their order, each as soon as all contributions to it are here. While there
// is a part left to encode this does not wait for other members: with a long round-trip time, that
// would add a round trip for each part.
void RoundInProgress::shard_reduce() {
  std::size_t reduced = 0;
  for (std::size_t i = 0; i < round_.parts.size(); ++i) {
    const Part& part = round_.parts[i];
    net::Frame frame = encode(part);
    if (part.owner != mine()) links_.send(part.owner, std::move(frame));
    while (reduced <= i && all_contributions_are_here(round_.parts[reduced]))
      reduce_own(round_.parts[reduced++]);
  }
  all_encoded();
  while (reduced < round_.parts.size()) reduce_own(round_.parts[reduced++]);
  for (const Part& part : round_.parts) {
    if (part.owner == mine()) continue;
    const net::Frame frame = links_.receive(part.owner, header(RoundMessage::Kind::result, part));
    exchange().results[part.index] = body_of(frame);
    method_.decode(round_, part, slots_);
  }
}

// True for a part of another owner, whose contributions do not come here.
bool RoundInProgress::all_contributions_are_here(const Part& part) {
  if (part.owner != mine()) return true;
  for (std::size_t member = 0; member < links_.count(); ++member) {
    if (member == mine()) continue;
    if (!links_.available(member, header(RoundMessage::Kind::contribution, part))) return false;
  }
  return true;
}

void RoundInProgress::reduce_own(const Part& part) {
  if (part.owner != mine()) return;
  std::vector<net::Frame> frames(round_.membership.count());
  std::vector<std::span<const std::byte>> contributions;
  for (std::size_t member = 0; member < frames.size(); ++member) {
    if (member == mine()) {
      contributions.emplace_back(exchange().own[part.index]);
      continue;
    }
    frames[member] = links_.receive(member, header(RoundMessage::Kind::contribution, part));
    contributions.push_back(body(frames[member]));
  }
  net::Frame frame = start_frame(header(RoundMessage::Kind::result, part));
  method_.reduce(round_, part, contributions, slots_, frame);
  // Sent before it is decoded here, because the others wait for it.
  send_to_peers(frame);
  exchange().results[part.index] = body_of(frame);
  if (!keeps_own_) exchange().own[part.index] = net::Frame();
  method_.decode(round_, part, slots_);
}

void RoundInProgress::gather_all() {
  for (const Part& part : round_.parts) send_to_peers(encode(part));
  all_encoded();
  exchange().received.resize(round_.parts.size());
  for (const Part& part : round_.parts) {
    for (std::size_t member = 0; member < round_.membership.count(); ++member) {
      exchange().received[part.index].push_back(
          member == mine()
              ? exchange().own[part.index]
              : body_of(links_.receive(member, header(RoundMessage::Kind::contribution, part))));
    }
    method_.decode(round_, part, slots_);
  }
}

void RoundInProgress::pair() {
  const std::size_t partner = round_.plan.partner;
  for (const Part& part : round_.parts) send_to_peers(encode(part));
  all_encoded();
  exchange().received.resize(round_.parts.size());
  for (const Part& part : round_.parts) {
    if (partner != mine()) {
      exchange().received[part.index].push_back(
          body_of(links_.receive(partner, header(RoundMessage::Kind::contribution, part))));
    }
    method_.decode(round_, part, slots_);
  }
}

// Slots are not read but for the checksum.
void RoundInProgress::sum_in_group() {
  for (const Part& part : round_.parts) {
    hooks_.wait_until_ready(part.range);
    hooks_.rounds.group->sum(part.range);
  }
  hooks_.rounds.group->complete(hooks_.while_waiting);
  if (hooks_.rounds.model_copied) hooks_.rounds.model_copied();
}

void RoundInProgress::gather_in_group() {
  hooks_.rounds.group->gather(round_.parts, hooks_.while_waiting);
}

// The ready messages carry the checksums: a fork is found before the round is applied. Once a
// member has heard from all its peers, each of them holds the round, too, so no member can apply it
// alone.
void RoundInProgress::confirm_ready() {
  RoundMessage ready = header(RoundMessage::Kind::ready, Part{});
  // One message for the whole round: members must expect the same header.
  ready.exchange = 0;
  ModelChecksum checksum;
  const bool is_copied_later =
      round_.plan.pattern == Pattern::group_gather && hooks_.rounds.gathers_on_device;
  if (method_.traits.model_is_replicated && !is_copied_later)
    checksum = checksum_model(slots_, method_.traits.model_slot, round_.id);
  net::Frame frame = start_frame(ready);
  append_checksum(checksum, frame);
  send_to_peers(frame);
  for (std::size_t member = 0; member < links_.count(); ++member) {
    if (!is_peer(member)) continue;
    const net::Frame theirs = links_.receive(member, ready);
    const std::vector<std::string> names =
        differences(slots_.layout(), checksum, read_checksum(body(theirs)));
    if (names.empty()) continue;
    throw SyncError(SyncError::Kind::fork,
                    "replicas {} and {} hold different bits of {} before step {}: their states "
                    "have forked; resume from the last checkpoint",
                    round_.membership.members[mine()], round_.membership.members[member],
                    fmt::join(names, ", "), store::number(round_.opened.step));
  }
}

}  // namespace

std::vector<std::size_t> checked_pieces(const Layout& layout, std::uint64_t round) {
  const auto pieces = static_cast<std::int64_t>(layout.pieces().size());
  const auto wanted = std::max(layout.size() / kValuesAtOnce, pieces / kPiecesAtOnce);
  const auto shares = static_cast<std::uint64_t>(std::clamp<std::int64_t>(wanted, 1, kMostShares));
  std::vector<std::size_t> checked;
  for (std::size_t i = round % shares; i < layout.pieces().size(); i += shares) {
    checked.push_back(i);
  }
  return checked;
}

ModelChecksum checksum_model(const Slots& slots, const std::string& slot, std::uint64_t round) {
  const Layout& layout = slots.layout();
  ModelChecksum checksum;
  for (const std::size_t i : checked_pieces(layout, round)) {
    const std::span<const std::byte> bytes = slots.bytes(slot, layout.pieces()[i].range);
    checksum.pieces.push_back(
        {static_cast<std::uint32_t>(i), XXH3_64bits(bytes.data(), bytes.size())});
  }
  return checksum;
}

void append_checksum(const ModelChecksum& checksum, net::Frame& out) {
  std::size_t at = out.size();
  out.resize(at + checksum.pieces.size() * kEntryBytes);
  for (const ModelChecksum::Piece& piece : checksum.pieces) {
    std::memcpy(out.data() + at, &piece.index, sizeof piece.index);
    std::memcpy(out.data() + at + sizeof piece.index, &piece.hash, sizeof piece.hash);
    at += kEntryBytes;
  }
}

ModelChecksum read_checksum(std::span<const std::byte> bytes) {
  if (bytes.size() % kEntryBytes != 0) {
    throw SyncError(SyncError::Kind::corrupt,
                    "a replica sent a model checksum of {} bytes, which is not a whole "
                    "number of entries of {}",
                    bytes.size(), kEntryBytes);
  }
  ModelChecksum checksum;
  checksum.pieces.resize(bytes.size() / kEntryBytes);
  const std::byte* from = bytes.data();
  for (ModelChecksum::Piece& piece : checksum.pieces) {
    std::memcpy(&piece.index, from, sizeof piece.index);
    std::memcpy(&piece.hash, from + sizeof piece.index, sizeof piece.hash);
    from += kEntryBytes;
  }
  return checksum;
}

std::vector<std::string> differences(const Layout& layout, const ModelChecksum& mine,
                                     const ModelChecksum& theirs) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < mine.pieces.size(); ++i) {
    const bool same = i < theirs.pieces.size() && theirs.pieces[i].index == mine.pieces[i].index &&
                      theirs.pieces[i].hash == mine.pieces[i].hash;
    if (!same) names.push_back(layout.pieces()[mine.pieces[i].index].spec.name);
  }
  return names;
}

void run_exchange(Round& round, SyncMethod& method, const Slots& slots, MemberLinks& links,
                  const ExchangeHooks& hooks) {
  RoundInProgress in_progress(round, method, slots, links, hooks);
  for (round.exchange = 0; round.exchange < round.plan.exchanges; ++round.exchange) {
    Round::Exchange& exchange = round.exchanges.emplace_back();
    exchange.own.resize(round.parts.size());
    exchange.results.resize(round.parts.size());
    switch (round.plan.pattern) {
      case Pattern::shard_reduce:
        in_progress.shard_reduce();
        break;
      case Pattern::gather_all:
        in_progress.gather_all();
        break;
      case Pattern::pair:
        in_progress.pair();
        break;
      case Pattern::group:
        in_progress.sum_in_group();
        break;
      case Pattern::group_gather:
        in_progress.gather_in_group();
        break;
    }
  }
  in_progress.confirm_ready();
  // All members of a group have given what they had to give, and the checksum is made.
  if (in_group(round.plan.pattern)) hooks.all_encoded();
}

}  // namespace strait::sync
