#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "launcher/run/coordinator.h"

// What the coordinator checks in every turn of its loop.
namespace strait::run {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kReportEvery = std::chrono::seconds(1);
// The last message of a process may still be in transit when its exit is noticed. It says why the
// process ended, or that its work was done, which the exit status does not. A process that was
// ended by a signal before the last step has sent no such message.
constexpr auto kLastMessageDelay = std::chrono::milliseconds(300);

}  // namespace

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
    const char* const early = worker.status->code == 0 ? " before its work was done" : "";
    fail(worker, worker.status->exit_code(), worker.status->sentence() + early, false);
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
  workers_.broadcast(StopAfterStep{});
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
  if (const auto why = watchdog_.standstill_change(now, steps_.median_seconds()))
    observers_.notify(&RunObserver::standing_still, *why);
  observers_.notify(&RunObserver::reports, workers_.reports(now));
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
