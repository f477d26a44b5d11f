#include "launcher/control/control_room.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace strait::control {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kTailLines = 20;
constexpr auto kTick = std::chrono::milliseconds(50);
constexpr auto kReportEvery = std::chrono::seconds(1);
// What a process said last may still be on its way when we see that it has ended.
constexpr auto kLastWords = std::chrono::milliseconds(300);

}  // namespace

Outcome ControlRoom::run(const std::atomic<int>& stops) {
  while (!over()) {
    for (const Letter& letter : inbox_.take_until(Clock::now() + kTick)) open(letter);
    look_for_comers();
    check_ends();
    check_stops(stops.load());
    check_watchdog();
    report();
  }
  if (phase_ == Phase::leaving && !crew_.all(&CrewMember::gone)) {
    observe(&RunObserver::event, std::string("the launcher"),
            Event{"lingered", "not every process left when all was done; the rest is killed"});
  }
  crew_.kill_all();
  Outcome result = outcome();
  observe(&RunObserver::ended, result);
  return result;
}

void ControlRoom::check_ends() {
  crew_.look_for_ends();
  for (CrewMember& member : crew_.members()) {
    if (!member.status || member.killed || member.failed || member.parted) continue;
    const bool well = member.done && member.status->code == 0;
    const bool talking = !member.status->signal && Clock::now() - member.ended < kLastWords;
    if (well || talking) continue;
    // Once we have sent everybody away, those who leave by themselves do as they were told.
    if (phase_ == Phase::breaking && !member.status->signal) continue;
    member.failed = true;
    const std::string early = member.status->code == 0 ? " before its work was done" : "";
    blame(member, member.status->exit_code(), member.status->sentence() + early, false);
  }
}

void ControlRoom::check_stops(int stops) {
  const bool ending = phase_ == Phase::leaving || phase_ == Phase::breaking;
  if (ending || stops <= stops_heard_) return;
  const bool now = stops >= 2 || phase_ == Phase::connecting;  // nothing is trained yet
  stops_heard_ = stops;
  observe(&RunObserver::stopping, now);
  if (now) {
    fail({std::nullopt, base::ExitCode::interrupted, "stopped at once, as asked"});
  } else {
    turn_away("the run is asked to stop");
    crew_.tell_all(StopAfterStep{});
  }
}

void ControlRoom::check_watchdog() {
  if (phase_ == Phase::leaving || phase_ == Phase::breaking) return;
  for (const CrewMember& member : crew_.members()) {
    if (member.gone()) watchdog_.finished(member.station.name);
  }
  if (const auto cut_off = broken_paths_.judge(Clock::now())) {
    return fail({net::ProcessName{0, cut_off->replica}, base::ExitCode::peer_lost, cut_off->words, true});
  }
  const auto verdict = watchdog_.judge(Clock::now(), steps_.median_seconds());
  if (!verdict) return;
  CrewMember& member = crew_.member(verdict->process);
  blame(member, base::ExitCode::stalled, verdict->sentence, false);
  if (verdict->silent) crew_.kill(member);
}

void ControlRoom::report() {
  const auto now = Clock::now();
  if (now - reported_ < kReportEvery) return;
  reported_ = now;
  let_leave();
  look_for_returns();
  observe(&RunObserver::reports, crew_.reports(now));
}

void ControlRoom::blame(const CrewMember& member, base::ExitCode code, const std::string& text,
                        bool effect) {
  // The text may name the process itself already.
  const std::string name = member.station.name.describe();
  const bool named = text.rfind(name, 0) == 0;
  const std::string rest = named ? text.substr(name.size()) : ": " + text;
  fail({member.station.name, code, member.describe() + rest, effect});
}

void ControlRoom::fail(const Finding& finding) {
  if (finding.process && crew_.member(*finding.process).joins) return turn_away(finding.sentence);
  if (phase_ == Phase::training && circle_.outlives(finding)) return part_with(finding);
  first_cause_.add(finding);
  if (phase_ == Phase::breaking) return;
  phase_ = Phase::breaking;
  deadline_ = Clock::now() + options_.grace;
  const std::string origin =
      finding.process ? crew_.member(*finding.process).describe() : std::string("the launcher");
  crew_.tell_all(Abort{finding.code, finding.sentence, origin});
}

void ControlRoom::part_with(const Finding& finding) {
  const std::uint32_t replica = finding.process->replica;
  const std::uint32_t before = circle_.epoch();
  circle_.leave(replica);
  broken_paths_.leave(replica);
  watchdog_.unblock(Clock::now());  // who waited for it has stood still for as long
  std::size_t left = 0;
  for (CrewMember& member : crew_.members()) {
    if (!circle_.has(member.station.name.replica)) {
      if (member.parted || member.joins) continue;
      crew_.tell(member, Abort{finding.code, finding.sentence, "its replica"});
      crew_.kill(member);
      member.parted = true;
      watchdog_.finished(member.station.name);
      for (const StepLine& line : steps_.leave(member.station.name)) {
        last_step_ = line.step;
        observe(&RunObserver::step, line);
      }
      continue;
    }
    ++left;
  }
  const Regroup regroup = circle_.regroup();
  // What was written as a part of the former circle is withdrawn before anybody acts in the new
  // one.
  for (const store::Step step : checkpoints_.regroup(regroup.epoch, left)) {
    crew_.tell_all(Dropped{step, "a replica left while it was written", true, before});
  }
  crew_.tell_all(regroup);
  observe(&RunObserver::replica_left,
          ReplicaLeft{replica, last_step_, finding.sentence, regroup.replicas});
  go_on_with_comeback();
  check_done();
}

void ControlRoom::let_leave() {
  if (!options_.asked_to_leave || phase_ != Phase::training) return;
  for (const std::uint32_t replica : options_.asked_to_leave()) {
    const Finding asked{net::ProcessName{0, replica}, base::ExitCode::peer_lost, "it was asked to"};
    if (circle_.outlives(asked)) part_with(asked);
  }
}

void ControlRoom::check_done() {
  const auto& members = crew_.members();
  const bool all = std::all_of(members.begin(), members.end(), [](const CrewMember& one) {
    return one.done || one.parted || one.joins;
  });
  if (!all || phase_ != Phase::training) return;
  turn_away("the run is over");
  phase_ = Phase::leaving;
  deadline_ = Clock::now() + options_.farewell;
}

bool ControlRoom::over() {
  if (phase_ != Phase::leaving && phase_ != Phase::breaking) return false;
  if (crew_.all(&CrewMember::gone)) {
    // Those who were seen to end a moment ago may have said why.
    return phase_ == Phase::leaving ||
           std::all_of(crew_.members().begin(), crew_.members().end(), [](const CrewMember& one) {
             return one.link_over || one.parted || Clock::now() - one.ended >= kLastWords;
           });
  }
  return Clock::now() >= deadline_;
}

Outcome ControlRoom::outcome() const {
  Outcome result;
  result.stopped = stops_heard_ > 0;
  result.step = last_step_;
  result.checkpoint = last_checkpoint_;
  std::optional<Finding> cause = first_cause_.cause();
  if (!cause && last_drop_) {
    cause = last_drop_;
    cause->sentence = "training went well, but its last checkpoint failed: " + cause->sentence;
  }
  if (!cause) return result;
  result.code = cause->code;
  result.cause = cause->sentence;
  result.followers = first_cause_.followers();
  result.culprit = cause->process;
  if (!cause->process) return result;
  const CrewMember& member = crew_.member(*cause->process);
  result.host = member.host();
  if (member.station.process) result.log_tail = member.station.process->log_tail(kTailLines);
  return result;
}

}  // namespace strait::control
