#include "launcher/worker/stage_reporter.h"

#include <spdlog/spdlog.h>

#include "launcher/worker/compute_device.h"

namespace strait::worker {
namespace {

constexpr double kNanosecondsPerSecond = 1e9;
// Of all processes of a run together: about 80 MB of trace.json.
constexpr std::size_t kTraceSpans = std::size_t{1} << 19U;
constexpr std::size_t kMostSpansOfProcess = std::size_t{1} << 16U;
// The same for the trace of the latest steps, which the launcher merges while it trains.
constexpr std::size_t kLatestSpans = std::size_t{1} << 16U;
constexpr std::size_t kLatestSpansOfProcess = std::size_t{1} << 12U;

const char* direction_word(stages::BoundaryTraffic::Direction direction) {
  return direction == stages::BoundaryTraffic::Direction::forward ? "forward" : "backward";
}

std::string codec_sentence(const stages::CodecDecision& one) {
  return fmt::format("boundary {} {}, from step {} on: {}", one.boundary,
                     direction_word(one.direction), number(one.made.step) + 1,
                     one.made.decision.why);
}

trace::BoundaryMetrics boundary_metrics(const stages::BoundaryTraffic& sent) {
  trace::BoundaryMetrics metrics = sent.traffic.metrics();
  metrics.boundary = sent.boundary;
  metrics.direction = direction_word(sent.direction);
  return metrics;
}

const char* phase_word(const schedules::Action& action, bool training) {
  if (!training) return "evaluating";
  if (action.work == schedules::Work::forward) return "forward";
  return action.work == schedules::Work::backward ? "backward" : "weight gradient";
}

}  // namespace

StageReporter::StageReporter(ControlClient& control, net::ProcessName process,
                             std::optional<std::uint64_t> bfloat16_sync_bytes,
                             std::size_t processes)
    : control_(control),
      process_(process),
      bfloat16_sync_bytes_(bfloat16_sync_bytes),
      // Distinct for up to 1,000 stages: files of one number would be merged as one process.
      spans_(process.describe(), static_cast<int>(process.replica * 1000 + process.stage),
             std::min(kMostSpansOfProcess, kTraceSpans / std::max<std::size_t>(processes, 1))),
      latest_spans_(
          std::min(kLatestSpansOfProcess, kLatestSpans / std::max<std::size_t>(processes, 1))),
      thread_([this] { report_loop(); }) {
  spans_.name_row(0, "compute");
  if (bfloat16_sync_bytes) sync_row_ = spans_.add_row("sync");
}

StageReporter::~StageReporter() {
  {
    const MutexLock lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

StageReporter::Watching StageReporter::watch(const stages::WaitClock& waits,
                                             std::vector<WatchedLink> links) {
  const MutexLock lock(mutex_);
  waits_ = &waits;
  links_ = std::move(links);
  return Watching(*this);
}

void StageReporter::unwatch() {
  const MutexLock lock(mutex_);
  waits_ = nullptr;
  links_.clear();
}

std::set<std::uint32_t> StageReporter::disconnected_for(std::chrono::seconds time) {
  const auto now = std::chrono::steady_clock::now();
  std::set<std::uint32_t> replicas;
  const MutexLock lock(mutex_);
  for (const WatchedLink& watched : links_) {
    if (watched.peer.replica == process_.replica) continue;
    const net::LinkState state = watched.link->state();
    // Only paths between replicas, because an eviction can cure those.
    if (!state.connected && now - state.last_heard >= time) replicas.insert(watched.peer.replica);
  }
  return replicas;
}

void StageReporter::set_device(at::Device device, planner::StepWork work) {
  {
    const MutexLock lock(mutex_);
    device_ = device;
    work_ = std::move(work);
  }
  if (!device.is_cpu()) read_sensors(base::NvidiaSession{});  // the first steps report it, too
}

StageReporter::Traffic StageReporter::traffic() {
  const MutexLock lock(mutex_);
  Traffic sent;
  for (const WatchedLink& watched : links_)
    sent[watched.carries] += watched.link->state().sent_bytes;
  return sent;
}

std::vector<run::LinkTraffic> StageReporter::links_since_last() {
  const MutexLock lock(mutex_);
  std::vector<run::LinkTraffic> links;
  for (const WatchedLink& watched : links_) {
    const net::LinkState state = watched.link->state();
    const net::LinkState before = std::exchange(link_states_[state.name], state);
    if (state.memory_problem != before.memory_problem) {
      spdlog::info("{} goes over loopback: {}", state.name, state.memory_problem);
    }
    links.push_back({state.name, state.peer, state.sent_bytes - before.sent_bytes,
                     state.received_bytes - before.received_bytes, state.bytes_per_second});
  }
  return links;
}

double StageReporter::waited() {
  const MutexLock lock(mutex_);
  return waits_ == nullptr ? 0.0 : waits_->read().total;
}

void StageReporter::begin_span() {
  waited_before_ = waited();
  span_started_ = trace::now();
}

void StageReporter::end_span(const char* name, const char* argument, std::int64_t value) {
  const auto wait =
      static_cast<trace::Nanoseconds>((waited() - waited_before_) * kNanosecondsPerSecond);
  // Waits are summed and not recorded one by one, so they are shown as one rectangle at the front.
  const trace::Nanoseconds working = span_started_ + wait;
  if (wait > 0) {
    spans_.record(trace::Span{"wait", "wait", 0, span_started_, working, argument, value});
  }
  spans_.record(trace::Span{name, "compute", 0, working, trace::now(), argument, value});
}

void StageReporter::before(const stages::Phase& phase, const schedules::Action& action) {
  step_ = number(phase.step);
  micro_batch_ = number(action.micro_batch);
  {
    const MutexLock lock(mutex_);
    phase_ = phase_word(action, phase.training);
    phase_bytes_ = 0;  // of an earlier checkpoint
  }
  begin_span();
}

void StageReporter::after(const stages::Phase& phase, const schedules::Action& action) {
  end_span(phase_word(action, phase.training), "micro_batch", number(action.micro_batch));
  begin_span();  // the update: from the last action of a step to its report
  ++finished_actions_;
}

void StageReporter::trained(const stages::StepSummary& summary) {
  const stages::StepDecision& decision = summary.decision;
  // Before anything is reported: what follows is not part of the update.
  end_span("update", "step", number(decision.step) + 1);
  const Traffic sent = traffic();
  const auto since_last = [&](Carries carries) {
    const auto now = sent.find(carries);
    return now == sent.end() ? 0 : now->second - reported_[carries];
  };
  run::StepDone done;
  static_cast<trace::StepMetrics&>(done) = summary.metrics;
  done.step = static_cast<store::Step>(number(decision.step) + 1);
  add_memory(done);
  add_device_metrics(done);
  add_core_use(done);
  done.bytes_forward = since_last(Carries::activations);
  done.bytes_backward = since_last(Carries::gradients);
  done.bytes_sync = since_last(Carries::weights);
  done.bytes_tied = since_last(Carries::tied_rows);
  for (const stages::BoundaryTraffic& sent_over : summary.sent) {
    done.boundaries.push_back(boundary_metrics(sent_over));
  }
  done.sync = sync_metrics(summary);
  done.links = links_since_last();
  reported_ = sent;
  micro_batch_ = -1;
  step_ = number(done.step);
  ++finished_actions_;
  control_.send(done);
  report_resends(done);
  for (const stages::CodecDecision& one : summary.codecs) {
    control_.send(run::Event{"codec_chosen", codec_sentence(one)});
  }
  report_dropped_rounds(summary.sync.dropped);
}

void StageReporter::add_memory(run::StepDone& done) {
  const MutexLock lock(mutex_);
  const std::int64_t own = own_memory_.peak();
  const std::int64_t all = own_memory_.peak_with_files();
  done.memory_bytes = static_cast<std::uint64_t>(all);
  done.program_bytes = static_cast<std::uint64_t>(std::max<std::int64_t>(all - own, 0));
}

void StageReporter::add_device_metrics(run::StepDone& done) {
  constexpr double kPercent = 100;
  const MutexLock lock(mutex_);
  done.gpu_memory_bytes = static_cast<std::uint64_t>(peak_device_memory(device_));
  done.gpu_busy = gpu_.busy_percent.value_or(0) / kPercent;
  done.gpu_celsius = gpu_.celsius.value_or(0);
  done.useful_flops = work_.flops;
  done.devices = work_.devices;
  if (device_.is_cpu()) return;
  const double published = plan::published_flops(gpu_.name, work_.dtype);
  done.peak_flops = work_.devices *
                    (published > 0 ? published : plan::published_flops(work_.device, work_.dtype));
}

void StageReporter::add_core_use(run::StepDone& done) {
  const auto now = std::chrono::steady_clock::now();
  const std::chrono::duration<double> seconds = now - std::exchange(reported_at_, now);
  const base::ProcessorTime before = std::exchange(used_, base::processor_time());
  if (seconds.count() <= 0) return;
  done.own_cores = (used_.process - before.process) / seconds.count();
  if (used_.machine && before.machine) {
    done.host_cores = (*used_.machine - *before.machine) / seconds.count();
  }
}

void StageReporter::report_dropped_rounds(std::uint64_t rounds) {
  const std::uint64_t before = std::exchange(dropped_, rounds);
  if (rounds == before) return;
  control_.send(
      run::Event{"round_dropped",
                 fmt::format("{} {} of {} dropped by step {} because a replica left; the other "
                             "replicas ran them again",
                             rounds - before, rounds - before == 1 ? "sync round" : "sync rounds",
                             process_.describe(), step_.load())});
}

std::vector<trace::SyncMetrics> StageReporter::sync_metrics(const stages::StepSummary& summary) {
  if (!bfloat16_sync_bytes_) return {};
  const sync::SyncTraffic before = std::exchange(synced_, summary.sync);
  const double waited_before = std::exchange(sync_waited_, summary.sync_waited_seconds);
  if (synced_.rounds > before.rounds) {
    spans_.record({"round", "sync", sync_row_, synced_.opened.time_since_epoch().count(),
                   synced_.exchanged.time_since_epoch().count(), "round",
                   static_cast<std::int64_t>(synced_.rounds)});
  }
  return {{process_.text(), synced_.rounds - before.rounds, synced_.sent_bytes - before.sent_bytes,
           *bfloat16_sync_bytes_, synced_.round_seconds - before.round_seconds,
           sync_waited_ - waited_before,
           synced_.rounds > before.rounds ? synced_.distance : std::nullopt}};
}

void StageReporter::report_resends(const run::StepDone& done) {
  for (const trace::BoundaryMetrics& boundary : done.boundaries) {
    if (boundary.resends == 0) continue;
    control_.send(run::Event{
        "resent",
        fmt::format("boundary {}: activation cache mismatch on {} {} at step {}; {} resent, "
                    "training unaffected",
                    boundary.boundary, boundary.resends, boundary.resends == 1 ? "row" : "rows",
                    number(done.step), boundary.resends == 1 ? "row" : "rows")});
  }
}

void StageReporter::evaluated(const stages::StepDecision& decision, bool preferences) {
  ++finished_actions_;
  // Every stage has the result, but only the first one reports it.
  if (process_.stage != 0) return;
  run::Evaluated evaluated{decision.step, decision.loss, decision.target_tokens};
  if (preferences) {
    evaluated.margin = decision.margin;
    evaluated.accuracy = decision.accuracy;
  }
  control_.send(evaluated);
}

}  // namespace strait::worker
