#include <fmt/format.h>

#include <algorithm>

#include "launcher/control/control_room.h"
#include "launcher/base/errors.h"

// What the control room hears from the processes, and what it makes of it.
namespace strait::control {

using Clock = std::chrono::steady_clock;

void ControlRoom::open(const Letter& letter) {
  CrewMember& from = crew_.members()[letter.station];
  if (from.parted) return;
  from.heard = Clock::now();
  if (const auto* over = std::get_if<Letter::LinkOver>(&letter.content)) {
    from.link_over = true;
    const base::ExitCode code = base::exit_code_of(over->error);
    const bool effect = code == base::ExitCode::peer_lost;
    // Whoever was told to leave hangs up.
    const bool expected =
        from.done || from.failed || from.status || (effect && phase_ == Phase::breaking);
    if (!expected) blame(from, code, over->error.what(), effect);
    return;
  }
  if (const auto* garbled = std::get_if<Letter::Garbled>(&letter.content)) {
    from.link_over = true;
    blame(from, base::ExitCode::internal, garbled->text, false);
    return;
  }
  const auto& message = std::get<StageMessage>(letter.content);
  watchdog_.heard(from.station.name, from.heard);
  try {
    if (!from.hello && !std::holds_alternative<Hello>(message) &&
        !std::holds_alternative<Failed>(message)) {
      throw base::MessageError("it spoke before it said hello");
    }
    std::visit([&](const auto& m) { hear(from, m); }, message);
  } catch (const base::MessageError& error) {
    blame(from, base::ExitCode::internal, error.what(), false);
  }
}

void ControlRoom::hear(CrewMember& from, const Hello& hello) {
  if (from.hello || hello.process != from.station.name) {
    throw base::MessageError("it said hello as " + hello.process.describe());
  }
  from.hello = hello;
  observe(&RunObserver::connected, hello);
  if (hello.build != options_.build) {
    blame(from, base::ExitCode::mismatch,
          fmt::format("its program is build {}, the launcher is build {}; build both again from "
                      "the same sources",
                      hello.build, options_.build),
          false);
  }
}

void ControlRoom::hear(CrewMember& from, const Ready& ready) {
  if (phase_ == Phase::training) return hear_of_comeback(from, ready);
  from.ready = ready;
  if (!crew_.all(&CrewMember::is_ready) || phase_ != Phase::connecting) return;
  const Peers ends = peers();
  phase_ = Phase::training;
  watchdog_.restart(Clock::now());
  crew_.tell_all(ends);
  observe(&RunObserver::training, options_.from, options_.to);
  tell_who_is_absent();
}

void ControlRoom::hear(CrewMember& from, const Progress& progress) {
  from.progress = progress;
  if (from.joins) return;  // it waits for its turn, however long
  watchdog_.progress(from.station.name, progress, from.heard);
}

void ControlRoom::hear(CrewMember& from, const StepDone& done) {
  const std::optional<StepLine> line = steps_.add(from.station.name, done);
  if (!line) return;
  last_step_ = line->step;
  observe(&RunObserver::step, *line);
}

// Every head tells, so that it is known whoever is left.
void ControlRoom::hear(CrewMember& /*from*/, const Evaluated& evaluated) {
  if (last_evaluation_ == evaluated.step) return;
  last_evaluation_ = evaluated.step;
  observe(&RunObserver::evaluated, evaluated);
}

void ControlRoom::hear(CrewMember& from, const ShardsWritten& shards) {
  if (!of_this_epoch(shards.step, shards.epoch)) return;
  const auto files = checkpoints_.written(from.station.name, shards);
  if (files && phase_ != Phase::breaking) commit(shards.step, *files);
}

void ControlRoom::hear(CrewMember& from, const ShardFailed& failed) {
  if (!of_this_epoch(failed.step, failed.epoch)) return;
  if (!checkpoints_.failed(failed.step, failed.epoch)) return;
  drop(failed.step, {from.station.name, failed.code, from.describe() + ": " + failed.text});
}

void ControlRoom::hear(CrewMember& from, const Event& event) {
  observe(&RunObserver::event, from.describe(), event);
}

void ControlRoom::hear(CrewMember& from, const LostReplica& lost) {
  const std::uint32_t teller = from.station.name.replica;
  if (!circle_.has(lost.replica) || !circle_.has(teller)) return;
  broken_paths_.add(teller, lost.replica, from.describe() + ": " + lost.text, Clock::now());
}

void ControlRoom::hear(CrewMember& from, const Failed& failed) {
  from.failed = true;
  blame(from, failed.code, failed.text, failed.code == base::ExitCode::peer_lost);
}

void ControlRoom::hear(CrewMember& from, const Done& /*done*/) {
  from.done = true;
  watchdog_.finished(from.station.name);
  check_done();
}

bool ControlRoom::of_this_epoch(store::Step step, std::uint32_t epoch) {
  if (epoch == circle_.epoch()) return true;
  if (checkpoints_.outdated(step, epoch)) {
    crew_.tell_all(Dropped{step, "a replica left while it was written", true, epoch});
  }
  return false;
}

void ControlRoom::commit(store::Step step, const std::vector<store::ShardFile>& files) {
  try {
    options_.commit(step, files);
  } catch (const std::exception& error) {
    checkpoints_.failed(step, circle_.epoch());
    const base::Failure failure = base::describe_failure(error);
    drop(step, {std::nullopt, failure.code, "the launcher: " + failure.text});
    return;
  }
  missed_ = 0;
  last_drop_.reset();
  last_checkpoint_ = step;
  observe(&RunObserver::checkpointed, step);
  Committed committed{step, circle_.epoch()};
  let_in(committed);
  crew_.tell_all(committed);
}

void ControlRoom::drop(store::Step step, const Finding& why) {
  ++missed_;
  last_drop_ = why;
  crew_.tell_all(Dropped{step, why.sentence, false, circle_.epoch()});
  observe(&RunObserver::checkpoint_failed, step, why.sentence);
  if (comeback_ && comeback_->step == Comeback::Step::waiting) ask_for_checkpoint();
  if (missed_ < options_.missed_checkpoints) return;
  fail({why.process, why.code,
        fmt::format("{} checkpoints in a row could not be written; {}", missed_, why.sentence)});
}

}  // namespace strait::control
