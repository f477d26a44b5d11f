#include "tests/interleavings/simulation.h"

#include <xxhash.h>

#include "tests/interleavings/trainer.h"

namespace strait::interleavings {
namespace {

std::uint64_t mixed(std::uint64_t history, std::initializer_list<std::uint64_t> facts) {
  for (const std::uint64_t fact : facts) {
    const std::array<std::uint64_t, 2> both = {history, fact};
    history = XXH3_64bits(both.data(), sizeof both);
  }
  return history;
}

std::vector<net::ProcessName> present_processes(const Case& settings) {
  std::vector<net::ProcessName> present;
  for (std::uint32_t replica = 0; replica < settings.replicas; ++replica) {
    if (settings.arrives == replica) continue;
    for (std::uint32_t stage = 0; stage < settings.stages; ++stage) {
      present.push_back({stage, replica});
    }
  }
  return present;
}

}  // namespace

std::string Transition::text() const {
  switch (kind) {
    case Kind::control:
      return fmt::format("control({})", process);
    case Kind::coordinator:
      return fmt::format("coordinator({})", process);
    case Kind::operation:
      break;
  }
  constexpr std::array kOutcomes = {"", " dead", " timeout"};
  return fmt::format("{}.{}{}", process, fiber, kOutcomes[static_cast<std::size_t>(outcome)]);
}

Simulation::Simulation(const Case& settings)
    : case_(settings),
      membership_(present_processes(settings), true),
      ledger_(present_processes(settings).size()) {
  std::set<std::uint32_t> absent;
  if (case_.arrives) absent.insert(*case_.arrives);
  arrival_waits_ = case_.arrives.has_value();
  for (std::uint32_t replica = 0; replica < case_.replicas; ++replica) {
    for (std::uint32_t stage = 0; stage < case_.stages; ++stage) {
      auto made = std::make_unique<Process>();
      made->name = {stage, replica};
      made->tracker = std::make_unique<sync::MembershipTracker>(case_.replicas, replica, absent);
      processes_.push_back(std::move(made));
    }
  }
  reports_.resize(processes_.size());
  for (std::uint32_t replica = 0; replica < case_.replicas; ++replica) connect_replica(replica);
  for (const net::ProcessName& name : present_processes(case_)) start(index_of(name), {});
  if (case_.victim) run_to_kill();
}

Simulation::~Simulation() {
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    if (processes_[i]->started && !processes_[i]->finished) kill(static_cast<int>(i));
  }
}

int Simulation::index_of(net::ProcessName name) const {
  return static_cast<int>(name.replica * case_.stages + name.stage);
}

// To all replicas of lower numbers, and inside the replica.
void Simulation::connect_replica(std::uint32_t replica) {
  const auto wire = [&](Wire::Use use, net::ProcessName one, net::ProcessName other) {
    auto made = std::make_shared<Wire>();
    made->use = use;
    made->number = static_cast<int>(wires_.size());
    made->process = {index_of(one), index_of(other)};
    if (case_.arrives && use != Wire::Use::pipeline && !joined_ &&
        (one.replica == case_.arrives || other.replica == case_.arrives)) {
      made->dead = {true, true};
    }
    wires_.push_back(std::move(made));
  };
  for (std::uint32_t stage = 0; stage + 1 < case_.stages; ++stage) {
    wire(Wire::Use::pipeline, {stage, replica}, {stage + 1, replica});
  }
  for (std::uint32_t other = 0; other < case_.replicas; ++other) {
    // At the start each pair once; a replica that comes is connected with all others.
    if (other == replica || (!joined_ && other > replica)) continue;
    for (std::uint32_t stage = 0; stage < case_.stages; ++stage) {
      wire(Wire::Use::sync, {stage, replica}, {stage, other});
      if (stage == 0) wire(Wire::Use::consensus, {stage, replica}, {stage, other});
    }
  }
}

std::pair<std::shared_ptr<Wire>, std::size_t> Simulation::newest_wire(Wire::Use use, int mine,
                                                                      int other) {
  for (auto wire = wires_.rbegin(); wire != wires_.rend(); ++wire) {
    if ((*wire)->use != use) continue;
    if ((*wire)->process == std::array{mine, other}) return {*wire, 0};
    if ((*wire)->process == std::array{other, mine}) return {*wire, 1};
  }
  throw std::logic_error("no wire between these processes");
}

void Simulation::start(int index, std::optional<JoinPoint> join) {
  process(index).started = true;
  fibers_.spawn(index, [this, index, join] { Trainer(*this, index, join).run(); });
  after_run(index);
}

void Simulation::after_run(int index) {
  Process& ran = process(index);
  if (!ran.started) return;
  fibers_.settle(index);
  const Fiber& first = *fibers_.of(index).front();
  if (ran.finished || first.state != Fiber::State::finished) return;
  finish(ran, first.error);
  if (ran.error.empty() || ran.killed) return;
  doom(ran.name.replica);
  reports_[static_cast<std::size_t>(index)].emplace_back(std::monostate());
}

void Simulation::finish(Process& ended, const std::string& error) {
  ended.finished = true;
  ended.error = error;
  ended.control.clear();
}

void Simulation::doom(std::uint32_t replica) {
  for (const auto& one : processes_) one->doomed = one->doomed || one->name.replica == replica;
}

void Simulation::kill(int index) {
  Process& victim = process(index);
  victim.killed = true;
  doom(victim.name.replica);
  fibers_.of(index).front()->killed = true;
  while (true) {
    bool any = false;
    for (std::size_t i = 0; i < fibers_.of(index).size(); ++i) {
      Fiber* const fiber = fibers_.of(index)[i];
      const bool stuck = fiber->state == Fiber::State::at_operation ||
                         (fiber->killed && fiber->state == Fiber::State::waiting);
      if (!stuck) continue;
      // The first fiber waits for its engine while it is unwound.
      if (fiber->state == Fiber::State::waiting && Fibers::find(fiber->waits_for)) continue;
      fibers_.run(*fiber);
      any = true;
    }
    fibers_.settle(index);
    if (!any) break;
  }
  finish(victim, "killed");
  reports_[static_cast<std::size_t>(index)].emplace_back(std::monostate());
}

Outcome Simulation::operate(const Operation& operation) {
  Fiber& fiber = *Fibers::current();
  const Process& own = process(fiber.process);
  if (own.killed) return Outcome::death;
  const Wire& wire = *operation.wire;
  const bool peer_doomed = process(wire.process[1 - operation.side]).doomed;
  if (operation.kind == Operation::Kind::send && !case_.sends_are_operations && !peer_doomed) {
    if (!wire.dead[operation.side]) return Outcome::done;
  }
  operations_[&fiber] = operation;
  Fibers::yield(Fiber::State::at_operation);
  const Outcome outcome = operations_.at(&fiber).outcome;
  operations_.erase(&fiber);
  if (fiber.killed) throw Killed();
  return own.killed ? Outcome::death : outcome;
}

std::vector<Transition> Simulation::operations_of(const Fiber& fiber) {
  if (fiber.state != Fiber::State::at_operation) return {};
  const Operation& at = operations_.at(&fiber);
  const Wire& wire = *at.wire;
  const bool peer_doomed = process(wire.process[1 - at.side]).doomed;
  std::vector<Transition> found;
  const auto add = [&](Outcome outcome) {
    found.push_back({Transition::Kind::operation, fiber.process, fiber.index, outcome});
  };
  const bool dead = wire.dead[at.side];
  if (at.kind == Operation::Kind::send) {
    if (!dead) add(Outcome::done);
    if (dead || peer_doomed) add(Outcome::death);
    return found;
  }
  const bool arrived = !wire.arriving[at.side].empty() && !wire.lost[at.side];
  if (arrived) add(Outcome::done);
  if (at.timed && at.woken) add(Outcome::timeout);
  if (peer_doomed || (dead && !arrived)) add(Outcome::death);
  return found;
}

std::uint64_t& Simulation::history(int process, int fiber) { return histories_[{process, fiber}]; }

void Simulation::perform(const Transition& transition) {
  postponed_ = transition.kind == Transition::Kind::coordinator ? 0 : reports_of_ended().size();
  if (transition.kind == Transition::Kind::coordinator) return handle_report(transition.process);
  if (transition.kind == Transition::Kind::control) return deliver(transition.process);
  Fiber& fiber = *fibers_.of(transition.process)[static_cast<std::size_t>(transition.fiber)];
  Operation& at = operations_.at(&fiber);
  at.outcome = transition.outcome;
  const auto& arriving = at.wire->arriving[at.side];
  std::uint64_t content = 0;
  if (at.kind == Operation::Kind::receive && at.outcome == Outcome::done) {
    content = XXH3_64bits(arriving.front().data(), arriving.front().size());
  }
  std::uint64_t& past = history(transition.process, transition.fiber);
  past = mixed(past, {static_cast<std::uint64_t>(at.kind), static_cast<std::uint64_t>(at.outcome),
                      static_cast<std::uint64_t>(at.wire->number), content});
  if (case_.victim && transition.process == index_of(*case_.victim)) ++victims_operations_;
  fibers_.run(fiber);
  after_run(transition.process);
}

void Simulation::deliver(int index) {
  Process& to = process(index);
  const Process::Control message = std::move(to.control.front());
  to.control.pop_front();
  constexpr std::uint64_t kDelivered = 99;  // no kind of operation
  const auto* decided = std::get_if<run::CheckpointDecided>(&message);
  const std::uint64_t kind = decided == nullptr ? 0 : decided->dropped ? 1 : 2;
  // Also of a process without fibers, which does not train yet.
  for (int fiber = 0; fiber < 2; ++fiber) {
    std::uint64_t& past = history(index, fiber);
    past = mixed(past, {kDelivered, kind});
  }
  for (Fiber* fiber : fibers_.of(index)) {
    if (fiber->state == Fiber::State::at_operation) operations_.at(fiber).woken = true;
  }
  if (const auto* regroup = std::get_if<run::Regroup>(&message)) {
    to.tracker->update(regroup->epoch, regroup->replicas);
  } else {
    to.decided.insert_or_assign({decided->step, decided->epoch}, *decided);
    if (!to.started && !decided->dropped) {
      start(index,
            JoinPoint{decided->step, {decided->next_epoch.value(), decided->arrives.value()}});
    }
  }
  Fibers::notify(&to.decided_changed);
  after_run(index);
}

void Simulation::polled(const Wire& wire, const net::Frame& frame) {
  constexpr std::uint64_t kPolled = 98;  // no kind of operation
  const Fiber& fiber = *Fibers::current();
  std::uint64_t& past = history(fiber.process, fiber.index);
  past = mixed(past, {kPolled, static_cast<std::uint64_t>(wire.number),
                      XXH3_64bits(frame.data(), frame.size())});
}

// What threads have seen, the operations they are at, and the links. The latter two differ after
// the same operations where a link died before or behind a frame that was sent in between.
std::uint64_t Simulation::state() const {
  std::uint64_t hash = mixed(coordinator_history_, {postponed_});
  const auto id = [](int process, int fiber) {
    return static_cast<std::uint64_t>(process * 8 + fiber);
  };
  for (const auto& [fiber, past] : histories_) {
    hash = mixed(hash, {id(fiber.first, fiber.second), past});
  }
  for (const auto& [fiber, at] : operations_) {
    if (fiber->state != Fiber::State::at_operation) continue;
    hash ^= mixed(id(fiber->process, fiber->index),
                  {static_cast<std::uint64_t>(at.kind), static_cast<std::uint64_t>(at.wire->number),
                   static_cast<std::uint64_t>(at.woken)});
  }
  for (const auto& wire : wires_) {
    for (const std::size_t side : {0U, 1U}) {
      hash = mixed(hash, {wire->arriving[side].size(), static_cast<std::uint64_t>(wire->dead[side]),
                          static_cast<std::uint64_t>(wire->lost[side])});
    }
  }
  return hash;
}

// ---- the coordinator: what Coordinator and CheckpointCommitter do with these messages

void Simulation::broadcast(const Process::Control& message) {
  for (const auto& one : processes_) {
    // One that joins gets messages from its membership on.
    if (membership_.has(one->name.replica) && !one->finished) one->control.push_back(message);
  }
}

void Simulation::saved(int index, const run::ShardsWritten& shards, std::uint64_t model) {
  models_[{shards.step, shards.epoch}][index] = model;
  reports_[static_cast<std::size_t>(index)].emplace_back(shards);
}

void Simulation::handle_report(int from) {
  const Report report = std::move(reports_[static_cast<std::size_t>(from)].front());
  reports_[static_cast<std::size_t>(from)].pop_front();
  const std::uint32_t replica = process(from).name.replica;
  coordinator_history_ =
      mixed(coordinator_history_, {static_cast<std::uint64_t>(from), report.index()});
  if (!membership_.has(replica)) return;
  if (const auto* shards = std::get_if<run::ShardsWritten>(&report)) {
    return written(from, *shards);
  }
  const run::Finding lost{process(from).name, base::ExitCode::peer_lost, "killed"};
  if (membership_.survives(lost)) evict(replica);
}

void Simulation::evict(std::uint32_t replica) {
  const std::uint32_t former = membership_.epoch();
  membership_.leave(replica);
  const run::Regroup regroup = membership_.regroup();
  for (const store::Step step :
       ledger_.regroup(regroup.epoch, regroup.replicas.size() * case_.stages)) {
    if (case_.mistake == Mistake::forget_dropped_checkpoint) continue;
    broadcast(run::CheckpointDecided{step, former, "a replica left", true});
  }
  broadcast(regroup);
}

void Simulation::written(int from, const run::ShardsWritten& shards) {
  if (shards.epoch != membership_.epoch()) {
    if (ledger_.outdated(shards.step, shards.epoch)) {
      broadcast(run::CheckpointDecided{shards.step, shards.epoch, "a replica left", true});
    }
    return;
  }
  if (!ledger_.written(process(from).name, shards)) return;
  check_committed({shards.step, shards.epoch});
  committed_.emplace(shards.step, shards.epoch);
  run::CheckpointDecided committed{shards.step, membership_.epoch()};
  if (number(shards.step) < case_.steps && std::exchange(arrival_waits_, false)) {
    joined_ = true;
    connect_replica(*case_.arrives);
    membership_.join(*case_.arrives);
    const run::Regroup regroup = membership_.regroup();
    ledger_.regroup(regroup.epoch, regroup.replicas.size() * case_.stages);
    committed.arrives = case_.arrives;
    committed.next_epoch = regroup.epoch;
    broadcast(regroup);
  }
  broadcast(committed);
}

// The shards of all replicas of a stage hold the same model.
void Simulation::check_committed(std::pair<store::Step, std::uint32_t> key) {
  for (const auto& [one, model] : models_[key]) {
    for (const auto& [other, theirs] : models_[key]) {
      if (process(one).name.stage != process(other).name.stage || model == theirs) continue;
      found_ = fmt::format("checkpoint {} of epoch {} has different models of {} and {}",
                           number(key.first), key.second, process(one).name.describe(),
                           process(other).name.describe());
    }
  }
}

// ---- the way to the kill

void Simulation::run_to_kill() {
  const int victim = index_of(*case_.victim);
  const auto reached = [&] {
    return process(victim).started && victims_operations_ >= case_.operations;
  };
  while (!reached() && !process(victim).finished) {
    if (!advance(victim, 0)) return;
  }
  if (process(victim).finished) return;
  killed_ = true;
  kill(victim);
}

// A step of this process, or of those that it waits for.
bool Simulation::advance(int index, std::size_t depth) {
  for (const Fiber* fiber : fibers_.of(index)) {
    for (const Transition& one : operations_of(*fiber)) {
      if (one.outcome == Outcome::death) continue;
      perform(one);
      return true;
    }
  }
  for (const Fiber* fiber : fibers_.of(index)) {
    if (fiber->state != Fiber::State::at_operation || depth >= processes_.size()) continue;
    const Operation& at = operations_.at(fiber);
    if (advance(at.wire->process[1 - at.side], depth + 1)) return true;
  }
  if (!process(index).control.empty()) {
    deliver(index);
    return true;
  }
  return depth == 0 && advance_anything();
}

bool Simulation::advance_anything() {
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    const int index = static_cast<int>(i);
    if (!reports_[i].empty()) {
      handle_report(index);
    } else if (!process(index).control.empty()) {
      deliver(index);
    } else {
      bool done = false;
      for (const Fiber* fiber : fibers_.of(index)) {
        const std::vector<Transition> operations = operations_of(*fiber);
        if (operations.empty()) continue;
        perform(operations.front());
        done = true;
        break;
      }
      if (!done) continue;
    }
    return true;
  }
  return false;
}

}  // namespace strait::interleavings
