#pragma once

#include <c10/core/Device.h>

#include "framework/mutex.h"
#include "framework/trace/span_log.h"
#include "launcher/base/machine.h"
#include "launcher/base/nvidia_driver.h"
#include "launcher/planner/step_forecast.h"
#include "launcher/worker/control_client.h"
#include "stages/stage_observer.h"
#include "stages/wait_clock.h"

namespace strait::worker {

// Reports what a stage does to the coordinator: a Progress every second, from a thread that does
// not compute, and a StepDone after every step. Also records the spans of the trace.
class StageReporter final : public stages::StageObserver {
 public:
  enum class Carries { activations, gradients, weights, tied_rows };  // what we send over it
  struct WatchedLink {
    net::Link* link = nullptr;
    net::ProcessName peer;
    Carries carries = Carries::activations;
    std::chrono::steady_clock::time_point last_data{};  // seen in the last report
  };

  // `bfloat16_sync_bytes`: what this process would send to other replicas per step if everything
  // that it trains were reduced in bfloat16; nullopt: there are no replicas. `processes`: of the
  // run, which share the size of the trace.
  StageReporter(ControlClient& control, net::ProcessName process,
                std::optional<std::uint64_t> bfloat16_sync_bytes, std::size_t processes = 1);
  ~StageReporter() override;

  // Reports include the stage's waits and links while this object lives. It must end before they
  // do, also if an exception ends them.
  class [[nodiscard]] Watching {
   public:
    explicit Watching(StageReporter& reporter) : reporter_(reporter) {}
    Watching(const Watching&) = delete;
    Watching& operator=(const Watching&) = delete;
    ~Watching() { reporter_.unwatch(); }

   private:
    StageReporter& reporter_;
  };
  Watching watch(const stages::WaitClock& waits, std::vector<WatchedLink> links)
      STRAIT_EXCLUDES(mutex_);
  // Other replicas to which a watched link has been disconnected for at least `time`. Any thread.
  std::set<std::uint32_t> disconnected_for(std::chrono::seconds time) STRAIT_EXCLUDES(mutex_);
  // The device that computes from now on, and what the process does on it in each step. Reports
  // contain its memory and, if its driver answers, its utilisation.
  void set_device(at::Device device, planner::StepWork work) STRAIT_EXCLUDES(mutex_);
  // `bytes`: that the phase will read or write, for an estimate of what is left; 0: not known.
  void set_phase(const std::string& phase, std::int64_t bytes = 0) STRAIT_EXCLUDES(mutex_);
  void count_progress() { ++finished_actions_; }  // for the watchdog
  trace::SpanLog& spans() { return spans_; }
  // At the end. If it cannot be written, an event says so: the run is saved, and ends as it would.
  void write_trace(const std::filesystem::path& path) const;
  // Writes a trace of the latest steps, from the thread of reports, for the report of a run that
  // still trains.
  void write_latest_steps(const std::filesystem::path& path) STRAIT_EXCLUDES(mutex_);

  void before(const stages::Phase& phase, const schedules::Action& action) override;
  void after(const stages::Phase& phase, const schedules::Action& action) override;
  void trained(const stages::StepSummary& summary) override;
  void evaluated(const stages::StepDecision& decision, bool preferences) override;

 private:
  using Traffic = std::map<Carries, std::uint64_t>;  // bytes sent so far

  void unwatch() STRAIT_EXCLUDES(mutex_);
  void report_loop();
  void read_sensors(const base::NvidiaSession& driver) STRAIT_EXCLUDES(mutex_);
  void write_wanted_trace() STRAIT_EXCLUDES(mutex_);
  run::Progress progress() STRAIT_EXCLUDES(mutex_);
  std::string phase_text() const STRAIT_REQUIRES(mutex_);
  Traffic traffic() STRAIT_EXCLUDES(mutex_);
  std::vector<run::LinkTraffic> links_since_last() STRAIT_EXCLUDES(mutex_);
  std::vector<trace::SyncMetrics> sync_metrics(const stages::StepSummary& summary);
  void add_memory(run::StepDone& done) STRAIT_EXCLUDES(mutex_);
  void add_device_metrics(run::StepDone& done) STRAIT_EXCLUDES(mutex_);
  void add_core_use(run::StepDone& done);
  double waited() STRAIT_EXCLUDES(mutex_);
  void begin_span();
  // Draws the time waited inside a span before its work, because ports block first.
  void end_span(const char* name, const char* argument, std::int64_t value);
  void report_resends(const run::StepDone& done);
  void report_dropped_rounds(std::uint64_t rounds);

  ControlClient& control_;
  const net::ProcessName process_;
  const std::optional<std::uint64_t> bfloat16_sync_bytes_;
  trace::SpanLog spans_;
  const std::size_t latest_spans_;  // of a trace of the latest steps
  int sync_row_ = 0;
  trace::Nanoseconds span_started_ = 0;
  double waited_before_ = 0;  // seconds, when the span began
  Traffic reported_;
  std::chrono::steady_clock::time_point reported_at_ = std::chrono::steady_clock::now();
  base::ProcessorTime used_ = base::processor_time();  // at that time
  std::map<std::string, net::LinkState> link_states_;  // by name, the same
  sync::SyncTraffic synced_;                           // the same
  double sync_waited_ = 0;
  std::uint64_t dropped_ = 0;  // sync rounds
  std::atomic<std::uint64_t> finished_actions_ = 0;
  std::atomic<std::int64_t> micro_batch_ = -1;
  std::atomic<std::int64_t> step_ = 0;

  Mutex mutex_;
  Condition changed_;
  at::Device device_ STRAIT_GUARDED_BY(mutex_) = at::kCPU;
  planner::StepWork work_ STRAIT_GUARDED_BY(mutex_);
  base::NvidiaDriver::Gpu gpu_ STRAIT_GUARDED_BY(mutex_);  // as of the last reading
  std::string phase_ STRAIT_GUARDED_BY(mutex_) = "loading";
  std::int64_t phase_bytes_ STRAIT_GUARDED_BY(mutex_) = 0;
  std::uint64_t phase_from_ STRAIT_GUARDED_BY(mutex_) = 0;  // store::file_progress() at its start
  std::chrono::steady_clock::time_point phase_since_ STRAIT_GUARDED_BY(mutex_);
  std::filesystem::path wanted_trace_ STRAIT_GUARDED_BY(mutex_);  // empty: none
  std::uint64_t file_progress_ STRAIT_GUARDED_BY(mutex_) = 0;  // of the process, at the last report
  const stages::WaitClock* waits_ STRAIT_GUARDED_BY(mutex_) = nullptr;
  std::vector<WatchedLink> links_ STRAIT_GUARDED_BY(mutex_);
  base::OwnMemory own_memory_ STRAIT_GUARDED_BY(mutex_);  // from before the stage is made
  bool ending_ STRAIT_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace strait::worker
