#include "tests/framework/sync/direct_round.h"

#include <algorithm>
#include <numeric>
#include <random>

namespace strait::sync {
namespace {

// Checks what the engine guarantees to methods; a failure is a bug of the test.
void must_hold(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

// Methods append to a frame that has a header, so their bytes may begin at an odd address.
net::Frame appended(const std::function<void(net::Frame&)>& append) {
  constexpr std::size_t kOffset = 3;
  net::Frame frame(kOffset);
  append(frame);
  frame.erase(frame.begin(), frame.begin() + kOffset);
  return frame;
}

std::vector<std::size_t> any_order(std::size_t count, std::uint64_t seed) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::shuffle(order.begin(), order.end(), std::mt19937_64(seed));
  return order;
}

}  // namespace

DirectReplica::DirectReplica(const Layout& layout, std::unique_ptr<SyncMethod> made)
    : weights(static_cast<std::size_t>(layout.size())),
      gradient(weights.size()),
      first_moment(weights.size()),
      second_moment(weights.size()),
      method(std::move(made)),
      slots(layout, {weights, gradient, first_moment, second_moment}, method->traits.slots) {}

DirectRound::DirectRound(const Layout& layout, std::size_t replicas, const Maker& maker)
    : layout_(layout) {
  for (std::size_t number = 0; number < replicas; ++number) {
    replicas_.push_back(std::make_unique<DirectReplica>(layout, maker()));
    members_.push_back(static_cast<std::uint32_t>(number));
  }
}

void DirectRound::start() {
  for (auto& each : replicas_) each->method->start(each->slots);
}

void DirectRound::set_members(const std::vector<std::uint32_t>& members) {
  must_hold(!in_progress(), "a round is in progress");
  members_ = members;
  ++epoch_;
}

void DirectRound::before_update(store::Step step) {
  if (!in_progress()) return;
  if (number(step) - number(rounds_[0].opened.step) >= rounds_[0].plan.late) apply();
}

bool DirectRound::pass(const HookPoint& point) {
  if (point.hook == Hook::update) before_update(point.step);
  if (!open(point)) return false;
  exchange();
  if (rounds_[0].plan.late == 0) apply();
  return true;
}

bool DirectRound::open(const HookPoint& point) {
  std::vector<Round> opened;
  for (std::size_t member = 0; member < members_.size(); ++member) {
    const Membership membership{epoch_, members_, member};
    auto plan = method(member).plan(point, layout_, membership);
    must_hold(member == 0 || plan.has_value() == !opened.empty(), "replicas do not open together");
    if (!plan) continue;
    Round& round = opened.emplace_back();
    round.id = opened_;
    round.opened = point;
    round.plan = std::move(*plan);
    round.membership = membership;
    round.parts = parts_of(round.plan, membership);
    must_hold(round.plan.ranges == opened[0].plan.ranges, "replicas plan different ranges");
  }
  if (opened.empty()) return false;
  must_hold(!in_progress(), "a second round opens while one is in progress");
  rounds_ = std::move(opened);
  ++opened_;
  sent_.assign(members_.size(), 0);
  sent_frames_.assign(members_.size(), 0);
  return true;
}

void DirectRound::exchange(const std::function<void()>& damage) {
  for (int exchange = 0; exchange < rounds_[0].plan.exchanges; ++exchange) {
    for (std::size_t member = 0; member < rounds_.size(); ++member) {
      rounds_[member].exchange = exchange;
      encode(member);
    }
    switch (rounds_[0].plan.pattern) {
      case Pattern::shard_reduce:
        reduce(exchange);
        break;
      case Pattern::gather_all:
        gather(exchange);
        break;
      case Pattern::pair:
        swap(exchange);
        break;
      case Pattern::group:
      case Pattern::group_gather:
        throw std::logic_error("there is no group here");
    }
    if (damage) damage();
    decode();
  }
}

void DirectRound::decode() {
  for (std::size_t member = 0; member < rounds_.size(); ++member) {
    for (const Part& part : rounds_[member].parts) {
      method(member).decode(rounds_[member], part, slots(member));
    }
  }
}

void DirectRound::encode(std::size_t member) {
  Round& round = rounds_[member];
  auto& now = round.exchanges.emplace_back();
  now.own.resize(round.parts.size());
  for (const auto index : any_order(round.parts.size(), round.id * 1000 + member)) {
    now.own[index] = appended([&](net::Frame& out) {
      method(member).encode(round, round.parts[index], slots(member), out);
    });
  }
}

void DirectRound::reduce(int exchange) {
  const auto which = static_cast<std::size_t>(exchange);
  const auto& parts = rounds_[0].parts;
  std::vector<net::Frame> results(parts.size());
  for (const auto index : any_order(parts.size(), opened_)) {
    const std::size_t owner = parts[index].owner;
    std::vector<std::span<const std::byte>> contributions;
    for (std::size_t member = 0; member < rounds_.size(); ++member) {
      contributions.emplace_back(rounds_[member].exchanges[which].own[index]);
      if (member != owner) count(member, contributions.back().size(), 1);
    }
    results[index] = appended([&](net::Frame& out) {
      method(owner).reduce(rounds_[owner], rounds_[owner].parts[index], contributions, slots(owner),
                           out);
    });
    count(owner, results[index].size(), rounds_.size() - 1);
  }
  for (auto& round : rounds_) round.exchanges[which].results = results;
}

void DirectRound::gather(int exchange) {
  const auto which = static_cast<std::size_t>(exchange);
  std::vector<std::vector<net::Frame>> all(rounds_[0].parts.size());
  for (std::size_t member = 0; member < rounds_.size(); ++member) {
    for (std::size_t index = 0; index < all.size(); ++index) {
      all[index].push_back(rounds_[member].exchanges[which].own[index]);
      count(member, all[index].back().size(), rounds_.size() - 1);
    }
  }
  for (auto& round : rounds_) round.exchanges[which].received = all;
}

void DirectRound::swap(int exchange) {
  const auto which = static_cast<std::size_t>(exchange);
  for (std::size_t member = 0; member < rounds_.size(); ++member) {
    const std::size_t partner = rounds_[member].plan.partner;
    must_hold(rounds_[partner].plan.partner == member, "partners do not name each other");
    auto& received = rounds_[member].exchanges[which].received;
    received.resize(rounds_[member].parts.size());
    if (partner == member) continue;
    for (std::size_t index = 0; index < received.size(); ++index) {
      received[index].push_back(rounds_[partner].exchanges[which].own[index]);
      count(member, rounds_[member].exchanges[which].own[index].size(), 1);
    }
  }
}

void DirectRound::count(std::size_t member, std::size_t bytes, std::size_t times) {
  sent_[member] += bytes * times;
  sent_frames_[member] += times;
}

void DirectRound::apply() {
  // The round ends first: a method that refuses leaves no round in progress.
  const auto rounds = std::exchange(rounds_, {});
  for (std::size_t member = 0; member < rounds.size(); ++member) {
    method(member).apply(rounds[member], slots(member));
  }
  ++applied_;
}

void DirectRound::drop() {
  const auto rounds = std::exchange(rounds_, {});
  for (std::size_t member = 0; member < rounds.size(); ++member)
    method(member).drop(rounds[member]);
}

SyncMethod& DirectRound::method(std::size_t member) { return *replicas_[members_[member]]->method; }
Slots& DirectRound::slots(std::size_t member) { return replicas_[members_[member]]->slots; }

}  // namespace strait::sync
