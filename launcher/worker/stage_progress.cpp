// What the reporter's own thread does: a Progress every second, the sensors of a GPU, and the trace
// of the latest steps.
#include <spdlog/spdlog.h>

#include <cstdlib>

#include "framework/net/link.h"
#include "framework/store/file_progress.h"
#include "launcher/worker/stage_reporter.h"

namespace strait::worker {
namespace {

// Often enough for the watchdog, which takes seconds of silence for a stall.
constexpr std::chrono::seconds kProgressEvery{1};
// Shorter waits are normal and not reported.
constexpr std::chrono::seconds kReportedWait{1};

// How many of the newest spans are those of the latest whole steps. The launcher fetches them from
// hosts at every checkpoint, so they are few.
std::size_t spans_of_latest_steps(const std::vector<trace::Span>& spans) {
  constexpr int kLatestSteps = 8;
  int ended = 0;
  const auto before = std::find_if(spans.rbegin(), spans.rend(), [&](const trace::Span& span) {
    return std::string_view(span.name) == "update" && ++ended > kLatestSteps;
  });
  // With the end of the step before, at which the first of these begins.
  const auto count = static_cast<std::size_t>(before - spans.rbegin());
  return std::min(count + 1, spans.size());
}

}  // namespace

// Called without the lock: the driver may be slow to answer, and a step waits for the lock.
void StageReporter::read_sensors(const base::NvidiaSession& driver) {
  at::Device device = at::kCPU;
  {
    const MutexLock lock(mutex_);
    device = device_;
  }
  if (device.is_cpu()) return;
  const std::optional<base::NvidiaDriver> all = driver.read();
  if (!all) return;
  const auto shown = base::visible_gpus(*all, std::getenv("CUDA_VISIBLE_DEVICES"));
  const std::size_t index = static_cast<std::uint8_t>(device.index());
  // The driver counts all GPUs of the host, libtorch only those that CUDA_VISIBLE_DEVICES names.
  if (index >= shown.size()) return;
  const MutexLock lock(mutex_);
  gpu_ = shown[index];
}

void StageReporter::set_phase(const std::string& phase, std::int64_t bytes) {
  ++finished_actions_;
  const MutexLock lock(mutex_);
  phase_ = phase;
  phase_bytes_ = bytes;
  phase_from_ = store::file_progress();
  phase_since_ = std::chrono::steady_clock::now();
  own_memory_.peak();  // includes loading, with the pages of files mapped at that time
}

void StageReporter::report_loop() {
  try {
    // a driver may take longer to begin than the watchdog allows silence
    control_.send(progress());
    const base::NvidiaSession driver;
    while (true) {
      read_sensors(driver);
      control_.send(progress());
      write_wanted_trace();
      const auto next = std::chrono::steady_clock::now() + kProgressEvery;
      const MutexLock lock(mutex_);
      while (!ending_ && wanted_trace_.empty() && changed_.wait_until(mutex_, next)) {
      }
      if (ending_) return;
    }
  } catch (const net::LinkError&) {
    // ControlClient sees the same error and ends the process; there is no coordinator to report to.
  } catch (const std::exception& error) {
    control_.exit_after_failure(error);
  }
}

void StageReporter::write_trace(const std::filesystem::path& path) const {
  try {
    spans_.write(path);
  } catch (const trace::TraceError& error) {
    spdlog::warn("no trace: {}", error.what());
    control_.send(run::Event{
        "no_trace", fmt::format("no trace of stage {}: {}", process_.text(), error.what())});
  }
}

void StageReporter::write_latest_steps(const std::filesystem::path& path) {
  {
    const MutexLock lock(mutex_);
    wanted_trace_ = path;
  }
  changed_.notify_all();
}

void StageReporter::write_wanted_trace() {
  std::filesystem::path path;
  {
    const MutexLock lock(mutex_);
    path = std::exchange(wanted_trace_, {});
  }
  if (path.empty()) return;
  try {
    spans_.write(path, std::min(latest_spans_, spans_of_latest_steps(spans_.spans())));
  } catch (const trace::TraceError& error) {
    spdlog::warn("no trace of the latest steps: {}", error.what());
  }
}

// "loading weights, 34 %, 12 s left", as far as its bytes are known and have begun to move.
std::string StageReporter::phase_text() const {
  const auto done = static_cast<double>(store::file_progress() - phase_from_);
  if (phase_bytes_ == 0 || done == 0) return phase_;
  constexpr double kMostShare = 0.99;
  const double share = std::min(done / static_cast<double>(phase_bytes_), kMostShare);
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - phase_since_;
  return fmt::format("{}, {:.0f} %, {:.0f} s left", phase_, 100 * share,
                     spent.count() * (1 - share) / share);
}

run::Progress StageReporter::progress() {
  run::Progress progress;
  progress.step = static_cast<store::Step>(step_.load());
  progress.micro_batch = micro_batch_;
  const MutexLock lock(mutex_);
  progress.phase = phase_text();
  const std::uint64_t file_progress = store::file_progress();
  // A large shard may be written or read for minutes. That is progress, too.
  if (std::exchange(file_progress_, file_progress) != file_progress) ++finished_actions_;
  progress.finished_actions = finished_actions_;
  if (waits_ == nullptr) return progress;
  const stages::WaitClock::Reading wait = waits_->read();
  const auto now = std::chrono::steady_clock::now();
  if (!wait.what.empty() && wait.link == nullptr && now - wait.since >= kReportedWait) {
    progress.waited_seconds = std::chrono::duration<double>(now - wait.since).count();
    progress.waits_for = fmt::format("{} waits {:.0f} s for {}", process_.describe(),
                                     progress.waited_seconds, wait.what);
  }
  for (WatchedLink& watched : links_) {
    const net::LinkState state = watched.link->state();
    // A tensor or a sync round may take minutes on a slow link, so received data counts as
    // progress.
    if (std::exchange(watched.last_data, state.last_data) != state.last_data) ++finished_actions_;
    progress.links.push_back(
        {state.name, state.peer, state.sent_bytes, state.received_bytes, state.bytes_per_second});
    // Only one link is waited for at a time. The others just carry traffic in the background.
    if (watched.link != wait.link) continue;
    progress.waits_on = watched.peer;
    progress.path_is_down = !state.connected;
    progress.waited_seconds = std::chrono::duration<double>(now - wait.since).count();
    if (now - wait.since < kReportedWait) continue;
    progress.waits_for =
        net::stall_report(net::Wait{process_.describe(), wait.what, wait.since}, state, now);
  }
  progress.finished_actions = finished_actions_;
  return progress;
}

}  // namespace strait::worker
