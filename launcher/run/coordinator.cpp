#include "launcher/run/coordinator.h"

namespace strait::run {
namespace {

using Clock = std::chrono::steady_clock;
// As many lines as fit on a screen together with the error.
constexpr std::size_t kTailLines = 20;
// Short enough that an exit or a stop request is noticed at once by a user.
constexpr auto kTick = std::chrono::milliseconds(50);
// A single step that is not finite is common at high learning rates; after five in a row, training
// does not recover.
constexpr int kMostSkipped = 5;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

constexpr auto kReportEvery = std::chrono::seconds(1);  // as often as workers send Progress
constexpr int kMostMessages = 4096;  // at once: run() does more than handle messages
// The last message of a process may still be in transit when its exit is noticed. It says why the
// process ended, or that its work was done, which the exit status does not. A process that was
// ended by a signal before the last step has sent no such message.
constexpr auto kLastMessageDelay = std::chrono::milliseconds(300);

}  // namespace

Coordinator::Coordinator(std::vector<WorkerHandle> handles, CoordinatorOptions options,
                         std::vector<RunObserver*> observers)
    : workers_(std::move(handles)),
      options_(std::move(options)),
      observers_(std::move(observers)),
      steps_(workers_.present()),
      losses_(options_.losses),
      watchdog_(workers_.names(), options_.limits, Clock::now()),
      membership_(workers_.present(), options_.survives_lost_replicas),
      checkpoints_(workers_, membership_, observers_, options_),
      memory_(workers_, observers_, options_.memory),
      last_step_(options_.from),
      rejoin_(workers_, inbox_, watchdog_, membership_, observers_, options_) {
  for (std::size_t i = 0; i < workers_.all().size(); ++i) {
    if (const auto& link = workers_.all()[i].handle.link) inbox_.add(i, *link);
  }
}

Outcome Coordinator::run(const std::atomic<int>& stops) {
  while (!over()) {
    receive();
    rejoin_.poll_started(phase_ == Phase::training);
    memory_.poll(phase_ != Phase::training);
    poll_inference();
    // After the messages, because the last message of a process explains its exit.
    check_exits();
    check_stops(stops.load());
    check_leaving_hosts();
    check_watchdog();
    report_every_second();
  }
  if (phase_ == Phase::leaving && !workers_.every(&Worker::gone)) {
    observers_.launcher_event(
        {"lingered", "some processes did not exit after their work was done and are killed"});
  }
  // Processes that are still alive must not outlive the launcher: nobody would end them.
  workers_.kill_all();
  Outcome result = outcome();
  if (result.code == base::ExitCode::done) {
    observers_.launcher_event({"stopped_early", result.early});
    observers_.launcher_event({"diverged", losses_.divergence()});
  }
  observers_.notify(&RunObserver::ended, result);
  return result;
}

// ---- messages

void Coordinator::receive() {
  auto deadline = Clock::now() + kTick;
  for (int handled = 0; handled < kMostMessages; ++handled) {
    const auto arrival = inbox_.take_until(deadline);
    if (!arrival) return;
    handle(*arrival);
    deadline = {};  // waits for the first one only
  }
}

void Coordinator::handle(const net::Arrival& arrival) {
  Worker& from = workers_.all()[arrival.link];
  if (from.evicted) return;
  from.heard = Clock::now();
  if (const auto* end = std::get_if<net::LinkError>(&arrival.content)) return on(from, *end);
  try {
    const StageMessage message = parse_stage_message(arrival.frame());
    watchdog_.heard(from.handle.name, from.heard);
    const auto* ended = std::get_if<Ended>(&message);
    const bool has_failed = ended != nullptr && ended->code != base::ExitCode::done;
    if (!from.hello && !std::holds_alternative<Hello>(message) && !has_failed) {
      throw base::MessageError("its first message is not Hello");
    }
    std::visit([&](const auto& m) { on(from, m); }, message);
  } catch (const base::MessageError& error) {
    fail(from, base::ExitCode::internal, error.what(), false);
  }
}

void Coordinator::on(Worker& from, const net::LinkError& end) {
  from.link_over = true;
  const base::ExitCode code = base::exit_code_of(end);
  const bool effect = code == base::ExitCode::peer_lost;
  // A worker that was aborted, or that has ended, closes its link. Any other error says why it
  // ended, and may arrive after its end was noticed.
  const bool expected = from.done || from.failed ||
                        (effect && (from.status.has_value() || phase_ == Phase::aborting));
  if (!expected) fail(from, code, end.what(), effect);
}

void Coordinator::on(Worker& from, const Hello& hello) {
  if (from.hello || hello.process != from.handle.name) {
    throw base::MessageError("unexpected Hello of " + hello.process.describe());
  }
  from.hello = hello;
  // The host as the recipe names it: the process knows only its own host name.
  from.hello->host = from.host();
  observers_.notify(&RunObserver::connected, *from.hello);
  if (hello.build != options_.build) {
    fail(from, base::ExitCode::mismatch,
         fmt::format("its program is build {}, the launcher is build {}; build both again from "
                     "the same sources",
                     hello.build, options_.build),
         false);
  }
}

void Coordinator::on(Worker& from, const Ready& ready) {
  if (phase_ == Phase::training) return rejoin_.on_ready(from, ready);
  from.ready = ready;
  if (!workers_.every(&Worker::is_ready) || phase_ != Phase::connecting) return;
  // Files change only now, when every process is up: a failed start must leave them untouched.
  if (const auto failure = checkpoints_.apply_changes()) return fail(*failure);
  Peers peers;
  try {
    peers = workers_.peers(options_.locate_endpoints);
  } catch (const base::UserError& error) {
    return fail({std::nullopt, error.code(), fmt::format("the launcher: {}", error.what())});
  }
  phase_ = Phase::training;
  trained_ = true;
  // Times of loading do not count for training.
  watchdog_.restart(Clock::now());
  workers_.broadcast(peers);
  observers_.notify(&RunObserver::training, options_.from, options_.to);
  if (options_.on_loss) options_.on_loss(losses_);
  checkpoints_.prune(store::PruneTime::at_start);
  if (options_.inference != nullptr) submit(options_.inference->begin());
  const std::vector<std::uint32_t> absent = workers_.absent_replicas();
  if (absent.empty()) return;
  observers_.notify(&RunObserver::replicas_absent,
                    ReplicasAbsent{absent, membership_.regroup().replicas});
}

void Coordinator::on(Worker& /*from*/, const InferenceAnswer& answer) {
  if (phase_ != Phase::training) return;  // what arrives after the end is not needed
  if (options_.inference == nullptr) throw base::MessageError("an answer that nothing asked for");
  submit(options_.inference->on_answer(answer));
}

void Coordinator::poll_inference() {
  if (options_.inference == nullptr || phase_ != Phase::training || answered_) return;
  // A user may take longer than any stage.
  if (options_.inference->idle()) watchdog_.unblock(Clock::now());
  submit(options_.inference->poll());
}

void Coordinator::submit(const std::vector<InferenceRequest>& requests) {
  Worker& first = workers_.at(net::ProcessName{0, 0});
  for (const InferenceRequest& request : requests) {
    std::visit([&](const auto& message) { workers_.send(first, message); }, request);
  }
  if (answered_ || !options_.inference->finished()) return;
  answered_ = true;
  workers_.broadcast(AfterStep{.stop = true});
}

void Coordinator::on(Worker& from, const Progress& progress) {
  from.progress = progress;
  if (from.rejoining) return;  // It may wait arbitrarily long for its checkpoint.
  watchdog_.progress(from.handle.name, progress, from.heard);
}

void Coordinator::on(Worker& from, const StepDone& done) {
  if (const std::optional<StepLine> line = steps_.add(from.handle.name, done)) on_step(*line);
}

void Coordinator::on_step(const StepLine& line) {
  // Steps after the decision to abort, until the Abort arrives, do not count.
  if (losses_.skipped_in_a_row() >= kMostSkipped) return;
  last_step_ = line.step;
  observers_.notify(&RunObserver::step, line);
  const double loss = line.loss.value_or(kNaN);
  if (line.targets == 0) return;  // a step without targets has no loss
  losses_.trained({line.step, loss, line.targets.value_or(0)}, line.skipped);
  if (options_.on_loss) options_.on_loss(losses_);
  if (losses_.skipped_in_a_row() < kMostSkipped) return;
  fail({std::nullopt, base::ExitCode::numeric,
        fmt::format("the loss or a gradient was not finite for {} steps in a row, the last being "
                    "step {} (loss {:.4g}, gradient norm {:.4g}); they changed no weight",
                    kMostSkipped, number(line.step), loss, line.grad_norm.value_or(kNaN))});
}

// Every replica's first stage sends it, so that it arrives whichever replica is lost.
void Coordinator::on(Worker&, const Evaluated& evaluated) {
  if (std::exchange(last_evaluation_, evaluated.step) == evaluated.step) return;
  observers_.notify(&RunObserver::evaluated, evaluated);
  losses_.evaluated({evaluated.step, evaluated.loss, evaluated.tokens});
  if (options_.on_loss) options_.on_loss(losses_);
}

void Coordinator::on(Worker& from, const ShardsWritten& shards) {
  if (shards.in_memory) return memory_.add(from, shards);
  on_checkpoint(checkpoints_.add(from, shards, phase_ == Phase::aborting));
}

void Coordinator::on(Worker& from, const Event& event) {
  observers_.notify(&RunObserver::event, from.describe(), event);
}

void Coordinator::on(Worker& from, const LostReplica& lost) {
  const std::uint32_t reporter = from.handle.name.replica;
  if (!membership_.has(lost.replica) || !membership_.has(reporter)) return;
  broken_paths_.add(reporter, lost.replica, from.describe() + ": " + lost.text, Clock::now());
}

void Coordinator::on(Worker& from, const Ended& ended) {
  if (ended.orphaned) {
    // Not a failure of its own: the loss of the host is the cause, and its exit shows that.
    if (from.handle.process) from.handle.process->parent_ended();
  } else if (ended.code == base::ExitCode::done) {
    from.done = true;
    watchdog_.finished(from.handle.name);
    check_done();
  } else {
    from.failed = true;
    fail(from, ended.code, ended.text, ended.code == base::ExitCode::peer_lost);
  }
}

void Coordinator::on_checkpoint(CheckpointCommitter::Result result) {
  if (result.committed) {
    // Before the decision is sent, because it names the replica that becomes a member here.
    admit_from(*result.committed);
    workers_.broadcast(*result.committed);
    checkpoints_.prune(store::PruneTime::after_commit);
  }
  if (!result.dropped) return;
  rejoin_.on_checkpoint_dropped();
  if (const auto finding = checkpoints_.too_many_missed()) fail(*finding);
}

void Coordinator::admit_from(CheckpointDecided& committed) {
  if (committed.step >= options_.to || phase_ != Phase::training) return;
  const std::optional<std::uint32_t> replica = rejoin_.take_waiting();
  if (!replica) return;
  membership_.join(*replica);
  joined_.insert(*replica);
  for (Worker& worker : workers_.all()) {
    if (std::exchange(worker.rejoining, false)) steps_.join(worker.handle.name, committed.step);
  }
  const Regroup regroup = membership_.regroup();
  checkpoints_.on_replica_joined();
  committed.arrives = replica;
  committed.next_epoch = regroup.epoch;
  workers_.broadcast(regroup);
  observers_.notify(&RunObserver::replica_joined,
                    ReplicaJoined{*replica, committed.step, regroup.replicas});
}

// ---- failures

void Coordinator::fail(const Worker& worker, base::ExitCode code, const std::string& text,
                       bool effect) {
  fail({worker.handle.name, code, worker.sentence_about(text), effect});
}

void Coordinator::fail(const Finding& finding) {
  // A replica that is rejoining does not train yet, so its failure only ends the rejoin.
  if (finding.process && workers_.at(*finding.process).rejoining) {
    return rejoin_.cancel(finding.sentence);
  }
  if (phase_ == Phase::training && membership_.survives(finding)) return evict_replica(finding);
  root_cause_.add(finding);
  // Later findings may be the root cause, but the Abort was already sent.
  if (phase_ == Phase::aborting) return;
  phase_ = Phase::aborting;
  deadline_ = Clock::now() + options_.abort_timeout;
  const std::string origin =
      finding.process ? workers_.at(*finding.process).describe() : std::string("the launcher");
  workers_.broadcast(Abort{finding.code, finding.sentence, origin});
}

void Coordinator::evict_replica(const Finding& finding) {
  const std::uint32_t replica = finding.process->replica;
  const std::uint32_t before = membership_.epoch();
  membership_.leave(replica);
  broken_paths_.leave(replica);
  watchdog_.unblock(Clock::now());  // the others may have waited for it until now
  for (Worker& worker : workers_.all()) {
    if (membership_.has(worker.handle.name.replica)) continue;
    if (worker.evicted || worker.rejoining) continue;
    workers_.evict(worker, Abort{finding.code, finding.sentence, "its replica"});
    watchdog_.finished(worker.handle.name);
    for (const StepLine& line : steps_.leave(worker.handle.name)) on_step(line);
  }
  const Regroup regroup = membership_.regroup();
  // Parts of checkpoints of the former epoch are withdrawn before any worker acts in the new one.
  checkpoints_.on_replica_left(before);
  workers_.broadcast(regroup);
  observers_.notify(&RunObserver::replica_left,
                    ReplicaLeft{replica, last_step_, finding.sentence, regroup.replicas});
  rejoin_.on_membership_changed();
  check_done();
}

Outcome Coordinator::outcome() const {
  Outcome result;
  const bool short_of_end = last_step_ < options_.to;
  if (phase_ == Phase::leaving && short_of_end) {
    result.early = losses_.end_reason(options_.stop_when);
  }
  result.stopped =
      stops_handled_ > 0 && result.early.empty() && (phase_ == Phase::aborting || short_of_end);
  result.step = last_step_;
  result.checkpoint = checkpoints_.last();
  result.joined = joined_;
  result.trained = trained_;
  result.left = left_hosts_;
  std::optional<Finding> cause = root_cause_.cause();
  if (!cause && leaving_ && !result.stopped && result.early.empty() && short_of_end) {
    cause = Finding{std::nullopt, leaving_->code, leaving_->sentence};  // no process has failed
    if (leaving_->process) result.host = workers_.at(*leaving_->process).host();
  }
  if (!cause && checkpoints_.last_drop()) {
    cause = checkpoints_.last_drop();
    cause->sentence = fmt::format("training {}, but its last checkpoint failed: {}",
                                  result.stopped ? "stopped" : "finished", cause->sentence);
  }
  if (!cause) return result;
  result.code = cause->code;
  result.cause = cause->sentence;
  result.followers = root_cause_.followers();
  result.culprit = cause->process;
  if (!cause->process) return result;
  const Worker& worker = workers_.at(*cause->process);
  result.host = worker.host();
  if (worker.handle.process) result.log_tail = worker.handle.process->log_tail(kTailLines);
  return result;
}

// What the coordinator checks in every turn of its loop.

void Coordinator::check_exits() {
  workers_.poll_exits();
  for (Worker& worker : workers_.all()) {
    if (!worker.status || worker.killed || worker.failed || worker.evicted) continue;
    if (worker.done && worker.status->code == 0) continue;
    const bool may_explain = !worker.done && (!worker.status->signal || last_step_ >= options_.to);
    if (may_explain && Clock::now() - worker.ended < kLastMessageDelay) continue;
    // After Abort the exit is expected.
    if (phase_ == Phase::aborting && !worker.status->signal) continue;
    worker.failed = true;
    // What it has saved is lost with its host, unless another replica has the same state.
    const bool counts =
        !worker.status->lost.empty() &&
        !membership_.survives({worker.handle.name, worker.status->exit_code(), "", false});
    if (worker.done && phase_ == Phase::leaving && !counts) {
      observers_.launcher_event(
          {"failed_after_end", worker.sentence_about(worker.status->sentence()) +
                                   " after all work of the run was done"});
      continue;
    }
    std::string why = worker.status->code == 0 ? " before its work was done" : "";
    if (worker.status->code.value_or(0) != 0)
      why = base::last_error(worker.handle.process->log_tail(kTailLines));
    fail(worker, worker.status->exit_code(), worker.status->sentence() + why, false);
  }
}

void Coordinator::check_stops(int stops) {
  if (ending() || stops <= stops_handled_) return;
  stops_handled_ = stops;
  const bool now = stops >= 2 || phase_ == Phase::connecting;  // nothing is trained yet
  observers_.notify(&RunObserver::stopping, now);
  if (now) {
    fail({std::nullopt, base::ExitCode::interrupted, "stopped immediately on request"});
  } else {
    stop_after_step();
  }
}

void Coordinator::stop_after_step() {
  rejoin_.cancel("the run is stopping");
  workers_.broadcast(AfterStep{.stop = true});
}

// A host that the run can do without is evicted. Otherwise the run saves first, while all stages
// still run.
void Coordinator::check_leaving_hosts() {
  for (Worker& worker : workers_.all()) {
    if (ending()) return;
    if (worker.gone() || worker.done || !worker.handle.process) continue;
    if (!worker.handle.process->host_leaves()) continue;
    const std::string host = worker.host();
    const Finding finding{
        worker.handle.name, base::ExitCode::peer_lost,
        fmt::format("host {} leaves the run: it was interrupted there (Ctrl-C or SIGTERM)", host)};
    left_hosts_.insert(host);
    const bool trains = phase_ == Phase::training && options_.inference == nullptr;
    if (!trains || worker.rejoining || membership_.survives(finding)) {
      fail(finding);
    } else if (!leaving_) {
      leaving_ = finding;
      observers_.launcher_event(
          {"host_leaves", finding.sentence + "; after this step the run saves and ends"});
      stop_after_step();
    }
  }
}

void Coordinator::check_watchdog() {
  if (ending()) return;
  for (const Worker& worker : workers_.all()) {
    if (worker.gone()) watchdog_.finished(worker.handle.name);
  }
  // Broken paths come first, because waiting over one of them looks like a stall too.
  if (const auto cut_off = broken_paths_.judge(Clock::now())) {
    return fail(
        {net::ProcessName{0, cut_off->replica}, base::ExitCode::peer_lost, cut_off->report, true});
  }
  const auto stall = watchdog_.judge(Clock::now(), steps_.median_seconds());
  if (!stall) return;
  Worker& worker = workers_.at(stall->process);
  fail(worker, base::ExitCode::stalled, stall->sentence, false);
  // It sends nothing, so it would not receive the Abort either.
  if (stall->silent) workers_.kill(worker);
}

void Coordinator::report_every_second() {
  const auto now = Clock::now();
  if (now - reported_ < kReportEvery) return;
  reported_ = now;
  if (!ending() && !options_.directory_in_place()) {
    fail({std::nullopt, base::ExitCode::storage_io,
          "the run's directory or its lock file was moved or removed while the run used it; put it "
          "back and resume"});
  }
  if (phase_ == Phase::training) evict_on_request();
  if (phase_ == Phase::training) rejoin_.poll_requests(stops_handled_ > 0);
  if (phase_ == Phase::training) end_on_request();
  if (const auto why = watchdog_.standstill_change(now, steps_.median_seconds()))
    observers_.notify(&RunObserver::standing_still, *why);
  observers_.notify(&RunObserver::reports, workers_.reports(now));
}

void Coordinator::end_on_request() {
  const std::string why = options_.end_requests && !leaving_ ? options_.end_requests() : "";
  if (why.empty()) return;
  leaving_ = Finding{std::nullopt, base::ExitCode::peer_lost, why};
  observers_.launcher_event({"replan", why + "; after this step the run saves and goes on so"});
  stop_after_step();
}

void Coordinator::evict_on_request() {
  if (!options_.leave_requests) return;
  for (const std::uint32_t replica : options_.leave_requests()) {
    const Finding request{net::ProcessName{0, replica}, base::ExitCode::peer_lost, "on request"};
    if (membership_.survives(request)) evict_replica(request);
  }
}

void Coordinator::check_done() {
  if (phase_ != Phase::training || !workers_.every(&Worker::is_optional)) return;
  rejoin_.cancel("the run is over");
  phase_ = Phase::leaving;
  deadline_ = Clock::now() + options_.exit_timeout;
}

bool Coordinator::over() const {
  if (!ending()) return false;
  if (!workers_.every(&Worker::gone)) return Clock::now() >= deadline_;
  return phase_ == Phase::leaving || std::ranges::all_of(workers_.all(), [](const Worker& one) {
           return one.link_over || one.evicted || Clock::now() - one.ended >= kLastMessageDelay;
         });
}

}  // namespace strait::run
