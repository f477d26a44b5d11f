#include "launcher/control/coordinator.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "launcher/control/checkpoint_ledger.h"
#include "launcher/control/crew.h"
#include "launcher/control/first_cause.h"
#include "launcher/control/station_inbox.h"
#include "launcher/failure.h"

namespace strait::launcher {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kTailLines = 20;
constexpr auto kTick = std::chrono::milliseconds(50);
constexpr auto kReportEvery = std::chrono::seconds(1);
// What a process said last may still be on its way when we see that it has ended.
constexpr auto kLastWords = std::chrono::milliseconds(300);

}  // namespace

class Coordinator::Control {
 public:
  Control(std::vector<Station> stations, CoordinatorOptions options,
          std::vector<RunObserver*> observers)
      : crew_(std::move(stations)),
        options_(std::move(options)),
        observers_(std::move(observers)),
        inbox_(links()),
        steps_(crew_.names()),
        checkpoints_(crew_.members().size()),
        watchdog_(crew_.names(), options_.limits, Clock::now()),
        last_step_(options_.from) {}

  Outcome run(const std::atomic<int>& stops);

 private:
  enum class Phase { connecting, training, leaving, breaking };

  std::vector<net::Link*> links() {
    std::vector<net::Link*> links;
    for (CrewMember& member : crew_.members()) links.push_back(member.station.link.get());
    return links;
  }
  template <class... Arguments, class... Given>
  void observe(void (RunObserver::*what)(Arguments...), const Given&... given) {
    for (RunObserver* observer : observers_) (observer->*what)(given...);
  }

  void open(const Letter& letter);
  void hear(CrewMember& from, const Hello& hello);
  void hear(CrewMember& from, const Ready& ready);
  void hear(CrewMember& from, const Progress& progress);
  void hear(CrewMember& from, const StepDone& done);
  void hear(CrewMember& from, const Evaluated& evaluated);
  void hear(CrewMember& from, const ShardsWritten& shards);
  void hear(CrewMember& from, const ShardFailed& failed);
  void hear(CrewMember& from, const Event& event);
  void hear(CrewMember& from, const Failed& failed);
  void hear(CrewMember& from, const Done& done);

  void commit(store::Step step, const std::vector<store::ShardFile>& files);
  void drop(store::Step step, const Finding& why);
  void check_ends();
  void check_stops(int stops);
  void check_watchdog();
  void report();
  void blame(const CrewMember& member, ExitCode code, const std::string& text, bool effect);
  void fail(const Finding& finding);
  bool over();
  Outcome outcome() const;

  Crew crew_;
  const CoordinatorOptions options_;
  const std::vector<RunObserver*> observers_;
  StationInbox inbox_;  // after crew_: its threads end before the links do
  StepLedger steps_;
  CheckpointLedger checkpoints_;
  Watchdog watchdog_;
  FirstCause first_cause_;
  Phase phase_ = Phase::connecting;
  Clock::time_point deadline_;  // leaving, breaking: for the last process to go
  Clock::time_point reported_;
  store::Step last_step_;
  std::optional<store::Step> last_checkpoint_;
  std::optional<Finding> last_drop_;  // no checkpoint succeeded since
  int missed_ = 0;
  int stops_heard_ = 0;
};

Outcome Coordinator::Control::run(const std::atomic<int>& stops) {
  while (!over()) {
    for (const Letter& letter : inbox_.take_until(Clock::now() + kTick)) open(letter);
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

void Coordinator::Control::open(const Letter& letter) {
  CrewMember& from = crew_.members()[letter.station];
  from.heard = Clock::now();
  if (const auto* over = std::get_if<Letter::LinkOver>(&letter.content)) {
    from.link_over = true;
    const ExitCode code = exit_code_of(over->error);
    const bool effect = code == ExitCode::peer_lost;
    // Whoever was told to leave hangs up.
    const bool expected =
        from.done || from.failed || from.status || (effect && phase_ == Phase::breaking);
    if (!expected) blame(from, code, over->error.what(), effect);
    return;
  }
  if (const auto* garbled = std::get_if<Letter::Garbled>(&letter.content)) {
    from.link_over = true;
    blame(from, ExitCode::internal, garbled->text, false);
    return;
  }
  const auto& message = std::get<StageMessage>(letter.content);
  watchdog_.heard(from.station.name, from.heard);
  try {
    if (!from.hello && !std::holds_alternative<Hello>(message) &&
        !std::holds_alternative<Failed>(message)) {
      throw ControlError("it spoke before it said hello");
    }
    std::visit([&](const auto& m) { hear(from, m); }, message);
  } catch (const ControlError& error) {
    blame(from, ExitCode::internal, error.what(), false);
  }
}

void Coordinator::Control::hear(CrewMember& from, const Hello& hello) {
  if (from.hello || hello.process != from.station.name) {
    throw ControlError("it said hello as " + hello.process.describe());
  }
  from.hello = hello;
  observe(&RunObserver::connected, hello);
  if (hello.build != options_.build) {
    blame(from, ExitCode::mismatch,
          fmt::format("its program is build {}, the launcher is build {}; build both again from "
                      "the same sources",
                      hello.build, options_.build),
          false);
  }
}

void Coordinator::Control::hear(CrewMember& from, const Ready& ready) {
  from.ready = ready;
  if (!crew_.all(&CrewMember::is_ready) || phase_ != Phase::connecting) return;
  const Peers peers{options_.meet ? options_.meet(crew_.endpoints()) : crew_.endpoints()};
  phase_ = Phase::training;
  watchdog_.restart(Clock::now());
  crew_.tell_all(peers);
  observe(&RunObserver::training, options_.from, options_.to);
}

void Coordinator::Control::hear(CrewMember& from, const Progress& progress) {
  from.progress = progress;
  watchdog_.progress(from.station.name, progress, from.heard);
}

void Coordinator::Control::hear(CrewMember& from, const StepDone& done) {
  const std::optional<StepLine> line = steps_.add(from.station.name, done);
  if (!line) return;
  last_step_ = line->step;
  observe(&RunObserver::step, *line);
}

void Coordinator::Control::hear(CrewMember& /*from*/, const Evaluated& evaluated) {
  observe(&RunObserver::evaluated, evaluated);
}

void Coordinator::Control::hear(CrewMember& from, const ShardsWritten& shards) {
  const auto files = checkpoints_.written(from.station.name, shards);
  if (files && phase_ != Phase::breaking) commit(shards.step, *files);
}

void Coordinator::Control::hear(CrewMember& from, const ShardFailed& failed) {
  if (!checkpoints_.failed(failed.step)) return;
  drop(failed.step, {from.station.name, failed.code, from.describe() + ": " + failed.text});
}

void Coordinator::Control::hear(CrewMember& from, const Event& event) {
  observe(&RunObserver::event, from.describe(), event);
}

void Coordinator::Control::hear(CrewMember& from, const Failed& failed) {
  from.failed = true;
  blame(from, failed.code, failed.text, failed.code == ExitCode::peer_lost);
}

void Coordinator::Control::hear(CrewMember& from, const Done& /*done*/) {
  from.done = true;
  watchdog_.finished(from.station.name);
  const auto& members = crew_.members();
  const bool all =
      std::all_of(members.begin(), members.end(), [](const CrewMember& one) { return one.done; });
  if (!all || phase_ == Phase::breaking) return;
  phase_ = Phase::leaving;
  deadline_ = Clock::now() + options_.farewell;
}

void Coordinator::Control::commit(store::Step step, const std::vector<store::ShardFile>& files) {
  try {
    options_.commit(step, files);
  } catch (const std::exception& error) {
    checkpoints_.failed(step);
    const Failure failure = describe_failure(error);
    drop(step, {std::nullopt, failure.code, "the launcher: " + failure.text});
    return;
  }
  missed_ = 0;
  last_drop_.reset();
  last_checkpoint_ = step;
  crew_.tell_all(Committed{step});
  observe(&RunObserver::checkpointed, step);
}

void Coordinator::Control::drop(store::Step step, const Finding& why) {
  ++missed_;
  last_drop_ = why;
  crew_.tell_all(Dropped{step, why.sentence});
  observe(&RunObserver::checkpoint_failed, step, why.sentence);
  if (missed_ < options_.missed_checkpoints) return;
  fail({why.process, why.code,
        fmt::format("{} checkpoints in a row could not be written; {}", missed_, why.sentence)});
}

void Coordinator::Control::check_ends() {
  crew_.look_for_ends();
  for (CrewMember& member : crew_.members()) {
    if (!member.status || member.killed || member.failed) continue;
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

void Coordinator::Control::check_stops(int stops) {
  const bool ending = phase_ == Phase::leaving || phase_ == Phase::breaking;
  if (ending || stops <= stops_heard_) return;
  const bool now = stops >= 2 || phase_ == Phase::connecting;  // nothing is trained yet
  stops_heard_ = stops;
  observe(&RunObserver::stopping, now);
  if (now) {
    fail({std::nullopt, ExitCode::interrupted, "stopped at once, as asked"});
  } else {
    crew_.tell_all(StopAfterStep{});
  }
}

void Coordinator::Control::check_watchdog() {
  if (phase_ == Phase::leaving || phase_ == Phase::breaking) return;
  for (const CrewMember& member : crew_.members()) {
    if (member.gone()) watchdog_.finished(member.station.name);
  }
  const auto verdict = watchdog_.judge(Clock::now(), steps_.median_seconds());
  if (!verdict) return;
  CrewMember& member = crew_.member(verdict->process);
  blame(member, ExitCode::stalled, verdict->sentence, false);
  if (verdict->silent) crew_.kill(member);
}

void Coordinator::Control::report() {
  const auto now = Clock::now();
  if (now - reported_ < kReportEvery) return;
  reported_ = now;
  observe(&RunObserver::reports, crew_.reports(now));
}

void Coordinator::Control::blame(const CrewMember& member, ExitCode code, const std::string& text,
                                 bool effect) {
  // The text may name the process itself already.
  const std::string name = member.station.name.describe();
  const bool named = text.rfind(name, 0) == 0;
  const std::string rest = named ? text.substr(name.size()) : ": " + text;
  fail({member.station.name, code, member.describe() + rest, effect});
}

void Coordinator::Control::fail(const Finding& finding) {
  first_cause_.add(finding);
  if (phase_ == Phase::breaking) return;
  phase_ = Phase::breaking;
  deadline_ = Clock::now() + options_.grace;
  const std::string origin =
      finding.process ? crew_.member(*finding.process).describe() : std::string("the launcher");
  crew_.tell_all(Abort{finding.code, finding.sentence, origin});
}

bool Coordinator::Control::over() {
  if (phase_ != Phase::leaving && phase_ != Phase::breaking) return false;
  if (crew_.all(&CrewMember::gone)) {
    // Those who were seen to end a moment ago may have said why.
    return phase_ == Phase::leaving ||
           std::all_of(crew_.members().begin(), crew_.members().end(), [](const CrewMember& one) {
             return one.link_over || Clock::now() - one.ended >= kLastWords;
           });
  }
  return Clock::now() >= deadline_;
}

Outcome Coordinator::Control::outcome() const {
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

Coordinator::Coordinator(std::vector<Station> stations, CoordinatorOptions options,
                         std::vector<RunObserver*> observers)
    : control_(std::make_unique<Control>(std::move(stations), std::move(options),
                                         std::move(observers))) {}
Coordinator::~Coordinator() = default;

Outcome Coordinator::run(const std::atomic<int>& stops) { return control_->run(stops); }

}  // namespace strait::launcher
