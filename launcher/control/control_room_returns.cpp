#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "launcher/control/control_room.h"
#include "launcher/base/errors.h"

// How the control room brings a replica (back) that takes no part.
namespace strait::control {

using Clock = std::chrono::steady_clock;

void ControlRoom::look_for_returns() {
  if (!options_.asked_to_return || phase_ != Phase::training) return;
  for (const std::uint32_t replica : options_.asked_to_return()) returns_.push_back(replica);
  if (comeback_ && comeback_->step == Comeback::Step::admitting &&
      Clock::now() >= comeback_->deadline) {
    turn_away("not every process of the others made ready for it in time");
  }
  // Whoever was called and then turned away is not up yet.
  const bool calls =
      called_.valid() && called_.wait_for(Clock::duration::zero()) != std::future_status::ready;
  if (comeback_ || calls || returns_.empty()) return;
  const std::uint32_t replica = returns_.front();
  returns_.erase(returns_.begin());
  begin_comeback(replica);
}

void ControlRoom::begin_comeback(std::uint32_t replica) {
  const auto is_its = [&](const CrewMember& one) { return one.station.name.replica == replica; };
  if (circle_.has(replica) || std::ranges::none_of(crew_.members(), is_its)) return;
  observe(&RunObserver::replica_returns, ReplicaReturns{replica, ""});
  const auto fails = [&](const std::string& why) {
    observe(&RunObserver::replica_returns, ReplicaReturns{replica, why});
  };
  if (stops_heard_ > 0) return fails("the run is asked to stop");
  // Their former links and processes go first: the new ones have the same names.
  auto& members = crew_.members();
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (!is_its(members[i])) continue;
    inbox_.retire(i);
    members[i].station.link.reset();
    members[i].station.process.reset();
  }
  comeback_ = Comeback{.replica = replica, .binds = {}, .unanswered = {}, .deadline = {}};
  called_ = std::async(std::launch::async, options_.bring_back, replica);
}

void ControlRoom::look_for_comers() {
  if (!comeback_ || comeback_->step != Comeback::Step::calling) return;
  if (called_.wait_for(Clock::duration::zero()) != std::future_status::ready) return;
  try {
    Comers comers = called_.get();
    if (phase_ != Phase::training) return turn_away("the run is over");
    take_in(std::move(comers));
  } catch (const std::exception& error) {
    turn_away(base::describe_failure(error).text);
  }
}

void ControlRoom::take_in(Comers comers) {
  comeback_->step = Comeback::Step::starting;
  comeback_->binds = std::move(comers.binds);
  for (const Event& note : comers.notes) observe(&RunObserver::event, "the launcher", note);
  auto& members = crew_.members();
  for (Station& station : comers.stations) {
    const auto place = std::ranges::find_if(
        members, [&](const CrewMember& one) { return one.station.name == station.name; });
    CrewMember fresh;
    fresh.station = std::move(station);
    fresh.heard = Clock::now();
    fresh.joins = true;
    *place = std::move(fresh);
    inbox_.listen_to(static_cast<std::size_t>(place - members.begin()), place->station.link.get());
    watchdog_.begin(place->station.name, Clock::now());
  }
}

void ControlRoom::hear_of_comeback(CrewMember& from, const Ready& ready) {
  if (!comeback_) return;  // it was turned away meanwhile
  if (from.joins || !from.ready) {
    from.ready = ready;
  } else {
    if (ready.admission != comeback_->number) return;  // that one was turned away
    for (const auto& [link, endpoint] : ready.endpoints) from.ready->endpoints[link] = endpoint;
    comeback_->unanswered.erase(from.station.name);
  }
  go_on_with_comeback();
}

void ControlRoom::go_on_with_comeback() {
  if (!comeback_) return;
  if (comeback_->step == Comeback::Step::starting) {
    const bool ready = std::ranges::all_of(
        crew_.members(), [](const CrewMember& one) { return !one.joins || one.is_ready(); });
    if (ready) ask_others();
    return;
  }
  std::erase_if(comeback_->unanswered,
                [&](const net::ProcessName& process) { return !circle_.has(process.replica); });
  if (comeback_->step != Comeback::Step::admitting || !comeback_->unanswered.empty()) return;
  comeback_->step = Comeback::Step::waiting;
  crew_.tell_all(peers());
  ask_for_checkpoint();
}

void ControlRoom::ask_others() {
  comeback_->step = Comeback::Step::admitting;
  comeback_->deadline = Clock::now() + options_.admission;
  comeback_->number = ++admissions_;
  Admit admit{comeback_->number, comeback_->replica, {}};
  std::set<std::string> bound;  // by those who come, whoever did before
  for (const CrewMember& member : crew_.members()) {
    if (!member.joins) continue;
    admit.keys[member.station.name.text()] = member.station.public_key;
    for (const auto& [link, endpoint] : member.ready->endpoints) bound.insert(link);
  }
  for (CrewMember& member : crew_.members()) {
    if (!circle_.has(member.station.name.replica)) continue;
    comeback_->unanswered.insert(member.station.name);
    std::erase_if(member.ready->endpoints,
                  [&](const auto& one) { return bound.contains(one.first); });
    admit.binds = comeback_->binds[member.station.name];
    crew_.tell(member, admit);
  }
}

void ControlRoom::tell_who_is_absent() {
  std::set<std::uint32_t> absent;
  for (const CrewMember& member : crew_.members()) {
    if (member.parted) absent.insert(member.station.name.replica);
  }
  if (absent.empty()) return;
  observe(&RunObserver::replicas_absent,
          ReplicasAbsent{{absent.begin(), absent.end()}, circle_.regroup().replicas});
}

// Whoever comes is not asked: it has no vote yet.
void ControlRoom::ask_for_checkpoint() {
  ++wishes_;
  for (CrewMember& member : crew_.members()) {
    if (!member.joins) crew_.tell(member, SaveSoon{wishes_});
  }
}

void ControlRoom::let_in(Committed& committed) {
  if (!comeback_ || comeback_->step != Comeback::Step::waiting) return;
  if (committed.step >= options_.to || phase_ != Phase::training) return;
  const std::uint32_t replica = comeback_->replica;
  comeback_.reset();
  circle_.join(replica);
  std::size_t count = 0;
  for (CrewMember& member : crew_.members()) {
    if (circle_.has(member.station.name.replica)) ++count;
    if (!std::exchange(member.joins, false)) continue;
    steps_.join(member.station.name, committed.step);
  }
  const Regroup regroup = circle_.regroup();
  checkpoints_.regroup(regroup.epoch, count);
  committed.arrives = replica;
  committed.next_epoch = regroup.epoch;
  crew_.tell_all(regroup);
  observe(&RunObserver::replica_joined, ReplicaJoined{replica, committed.step, regroup.replicas});
}

void ControlRoom::turn_away(const std::string& why) {
  if (!comeback_) return;
  const std::uint32_t replica = comeback_->replica;
  comeback_.reset();
  for (CrewMember& member : crew_.members()) {
    if (!std::exchange(member.joins, false)) continue;
    crew_.tell(member, Abort{base::ExitCode::peer_lost, why, "the launcher"});
    crew_.kill(member);
    member.parted = true;
    watchdog_.finished(member.station.name);
  }
  observe(&RunObserver::replica_returns, ReplicaReturns{replica, why});
}

}  // namespace strait::control
