#include "tests/framework/sync/direct_round.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <stdexcept>
#include <utility>

namespace strait::sync {
namespace {

// What the engine owes to every method; broken here, it is a mistake of the test.
void must_hold(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

// Methods append: something stands before their bytes, and may leave them at an odd address.
net::Frame behind_a_head(const std::function<void(net::Frame&)>& append) {
  constexpr std::size_t kHead = 3;
  net::Frame frame(kHead);
  append(frame);
  frame.erase(frame.begin(), frame.begin() + kHead);
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
      slots(layout, {weights, gradient, first_moment, second_moment}, method->slots()) {}

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

void DirectRound::take_part(const std::vector<std::uint32_t>& members) {
  must_hold(!under_way(), "a round is under way");
  members_ = members;
  ++epoch_;
}

void DirectRound::before_update(store::Step step) {
  if (!under_way()) return;
  if (number(step) - number(rounds_[0].opened.step) >= rounds_[0].plan.late) land();
}

bool DirectRound::pass(const Moment& moment) {
  if (moment.hook == Hook::update) before_update(moment.step);
  if (!open(moment)) return false;
  exchange();
  if (rounds_[0].plan.late == 0) land();
  return true;
}

bool DirectRound::open(const Moment& moment) {
  std::vector<Round> opened;
  for (std::size_t place = 0; place < members_.size(); ++place) {
    const Membership membership{epoch_, members_, place};
    auto plan = method(place).plan(moment, layout_, membership);
    must_hold(place == 0 || plan.has_value() == !opened.empty(), "replicas do not open together");
    if (!plan) continue;
    Round& round = opened.emplace_back();
    round.id = opened_;
    round.opened = moment;
    round.plan = std::move(*plan);
    round.membership = membership;
    round.parts = parts_of(round.plan, membership);
    must_hold(round.plan.ranges == opened[0].plan.ranges, "replicas plan different ranges");
  }
  if (opened.empty()) return false;
  must_hold(!under_way(), "a second round opens while one is under way");
  rounds_ = std::move(opened);
  ++opened_;
  sent_.assign(members_.size(), 0);
  sent_frames_.assign(members_.size(), 0);
  return true;
}

void DirectRound::exchange(const std::function<void()>& damage) {
  for (int exchange = 0; exchange < rounds_[0].plan.exchanges; ++exchange) {
    for (std::size_t place = 0; place < rounds_.size(); ++place) {
      rounds_[place].exchange = exchange;
      tell(place);
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
    }
    if (damage) damage();
    arrive();
  }
}

void DirectRound::arrive() {
  for (std::size_t place = 0; place < rounds_.size(); ++place) {
    for (const Part& part : rounds_[place].parts) {
      method(place).arrived(rounds_[place], part, slots(place));
    }
  }
}

void DirectRound::tell(std::size_t place) {
  Round& round = rounds_[place];
  auto& now = round.exchanges.emplace_back();
  now.mine.resize(round.parts.size());
  for (const auto index : any_order(round.parts.size(), round.id * 1000 + place)) {
    now.mine[index] = behind_a_head(
        [&](net::Frame& out) { method(place).tell(round, round.parts[index], slots(place), out); });
  }
}

void DirectRound::reduce(int exchange) {
  const auto which = static_cast<std::size_t>(exchange);
  const auto& parts = rounds_[0].parts;
  std::vector<net::Frame> answers(parts.size());
  for (const auto index : any_order(parts.size(), opened_)) {
    const std::size_t owner = parts[index].owner;
    std::vector<std::span<const std::byte>> told;
    for (std::size_t place = 0; place < rounds_.size(); ++place) {
      told.emplace_back(rounds_[place].exchanges[which].mine[index]);
      if (place != owner) count(place, told.back().size(), 1);
    }
    answers[index] = behind_a_head([&](net::Frame& out) {
      method(owner).fold(rounds_[owner], rounds_[owner].parts[index], told, slots(owner), out);
    });
    count(owner, answers[index].size(), rounds_.size() - 1);
  }
  for (auto& round : rounds_) round.exchanges[which].agreed = answers;
}

void DirectRound::gather(int exchange) {
  const auto which = static_cast<std::size_t>(exchange);
  std::vector<std::vector<net::Frame>> all(rounds_[0].parts.size());
  for (std::size_t place = 0; place < rounds_.size(); ++place) {
    for (std::size_t index = 0; index < all.size(); ++index) {
      all[index].push_back(rounds_[place].exchanges[which].mine[index]);
      count(place, all[index].back().size(), rounds_.size() - 1);
    }
  }
  for (auto& round : rounds_) round.exchanges[which].theirs = all;
}

void DirectRound::swap(int exchange) {
  const auto which = static_cast<std::size_t>(exchange);
  for (std::size_t place = 0; place < rounds_.size(); ++place) {
    const std::size_t partner = rounds_[place].plan.partner;
    must_hold(rounds_[partner].plan.partner == place, "partners do not know each other");
    auto& theirs = rounds_[place].exchanges[which].theirs;
    theirs.resize(rounds_[place].parts.size());
    if (partner == place) continue;
    for (std::size_t index = 0; index < theirs.size(); ++index) {
      theirs[index].push_back(rounds_[partner].exchanges[which].mine[index]);
      count(place, rounds_[place].exchanges[which].mine[index].size(), 1);
    }
  }
}

void DirectRound::count(std::size_t place, std::size_t bytes, std::size_t times) {
  sent_[place] += bytes * times;
  sent_frames_[place] += times;
}

void DirectRound::land() {
  // The round ends first: a method that refuses leaves nothing under way.
  const auto rounds = std::exchange(rounds_, {});
  for (std::size_t place = 0; place < rounds.size(); ++place) {
    method(place).land(rounds[place], slots(place));
  }
  ++landed_;
}

void DirectRound::drop() {
  const auto rounds = std::exchange(rounds_, {});
  for (std::size_t place = 0; place < rounds.size(); ++place) method(place).drop(rounds[place]);
}

SyncMethod& DirectRound::method(std::size_t place) { return *replicas_[members_[place]]->method; }
Slots& DirectRound::slots(std::size_t place) { return replicas_[members_[place]]->slots; }

}  // namespace strait::sync
