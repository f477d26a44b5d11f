#include "launcher/run/watchdog.h"

#include <fmt/ranges.h>

namespace strait::run {
namespace {

using Seconds = std::chrono::duration<double>;

// judge() is called several times a second. A longer gap means that this process was stopped: by
// Ctrl-Z, a debugger, or a machine that swaps.
constexpr auto kOwnPause = std::chrono::seconds(2);
constexpr double kSteps = 10;
// The duration of an action is unknown before all have run once, which the first step shows.
constexpr int kUnmeasuredFactor = 5;
constexpr int kLateHelloFactor = 4;
// A link gives up some seconds after `hold`, and the waiting process then reports which path is
// broken. That is more precise than a diagnosis of processes that wait for each other.
constexpr auto kLinkReportDelay = std::chrono::seconds(10);
// A process reports every second. After this time its last report says nothing about the present.
constexpr auto kReportIsOld = std::chrono::seconds(4);

double seconds_between(Watchdog::Time from, Watchdog::Time to) {
  return Seconds(to - from).count();
}

std::vector<std::string> descriptions(const std::vector<net::ProcessName>& processes) {
  std::vector<std::string> all;
  all.reserve(processes.size());
  for (const net::ProcessName& process : processes) all.push_back(process.describe());
  return all;
}

}  // namespace

Watchdog::Watchdog(const std::vector<net::ProcessName>& processes, WatchdogLimits limits,
                   Time start)
    : limits_(limits), judged_(start) {
  for (const net::ProcessName& process : processes) begin(process, start);
}

void Watchdog::begin(net::ProcessName process, Time now) {
  Watched fresh;
  fresh.start = now;
  fresh.moved = now;
  watched_[process] = fresh;
}

void Watchdog::heard(net::ProcessName process, Time now) {
  Watched& watched = watched_.at(process);
  if (!watched.heard) {
    longest_hello_ = std::max(longest_hello_, now - watched.start);
    watched.moved = now;
  }
  watched.heard = now;
}

void Watchdog::progress(net::ProcessName process, const Progress& progress, Time now) {
  heard(process, now);
  Watched& watched = watched_.at(process);
  const bool moved =
      watched.latest && watched.latest->finished_actions != progress.finished_actions;
  if (moved || !watched.latest) watched.moved = now;
  if (moved) watched.ever_moved = true;
  watched.latest = progress;
}

void Watchdog::finished(net::ProcessName process) { watched_.at(process).finished = true; }

void Watchdog::restart(Time now) {
  training_ = true;
  limits_.silence = std::max(limits_.silence, limits_.hold);
  if (limits_.hold.count() > 0) {
    limits_.progress = std::max(limits_.progress, limits_.hold + kLinkReportDelay);
  }
  for (auto& [name, watched] : watched_) watched.ever_moved = false;
  unblock(now);
}

void Watchdog::unblock(Time now) {
  for (auto& [name, watched] : watched_) watched.moved = now;
}

void Watchdog::forgive(std::chrono::nanoseconds gap) {
  const auto shift = std::chrono::duration_cast<Time::duration>(gap);
  for (auto& [name, watched] : watched_) {
    watched.start += shift;
    watched.moved += shift;
    if (watched.heard) *watched.heard += shift;
  }
}

std::optional<StallDiagnosis> Watchdog::judge(Time now, double median_step_seconds) {
  if (now - judged_ > kOwnPause) forgive(now - judged_);
  judged_ = now;
  if (auto stall = missing(now)) return stall;
  if (auto stall = silent(now)) return stall;
  return stuck(now, median_step_seconds);
}

std::optional<StallDiagnosis> Watchdog::missing(Time now) const {
  // Adapts to a slow start: if other processes took long, the last ones may too.
  const auto adapted = std::max<Time::duration>(limits_.start, kLateHelloFactor * longest_hello_);
  std::vector<net::ProcessName> absent;
  Time start = now;
  for (const auto& [name, watched] : watched_) {
    if (watched.heard || watched.finished || now - watched.start <= adapted) continue;
    absent.push_back(name);
    start = std::min(start, watched.start);
  }
  if (absent.empty()) return std::nullopt;
  const std::vector<std::string> names = descriptions(absent);
  return StallDiagnosis{absent.front(),
                        fmt::format("{} did not connect within {:.0f} s of the start",
                                    fmt::join(names, ", "), seconds_between(start, now)),
                        true};
}

std::optional<StallDiagnosis> Watchdog::silent(Time now) const {
  const Watched* longest = nullptr;
  net::ProcessName silent_one;
  for (const auto& [name, watched] : watched_) {
    if (watched.finished || !watched.heard || now - *watched.heard <= limits_.silence) continue;
    if (!longest || *watched.heard < *longest->heard) {
      longest = &watched;
      silent_one = name;
    }
  }
  if (!longest) return std::nullopt;
  const std::string last =
      longest->latest ? fmt::format(" (last report: {} at step {})", longest->latest->phase,
                                    store::number(longest->latest->step))
                      : std::string();
  return StallDiagnosis{
      silent_one,
      fmt::format("{} has sent nothing for {:.1f} s, but should report every second: its process "
                  "is stopped, stuck or cut off{}",
                  silent_one.describe(), seconds_between(*longest->heard, now), last),
      true};
}

std::optional<StallDiagnosis> Watchdog::stuck(Time now, double median_step_seconds) const {
  const bool measured = median_step_seconds > 0;
  const auto steps = std::chrono::duration_cast<Time::duration>(
      Seconds(kSteps * (measured ? median_step_seconds : limits_.forecast_step_seconds)));
  const auto limit = std::max<Time::duration>(limits_.progress, steps);
  const auto unmeasured = std::max<Time::duration>(kUnmeasuredFactor * limits_.progress, steps);
  std::optional<net::ProcessName> first;
  for (const auto& [name, watched] : watched_) {
    if (watched.finished || !watched.latest) continue;
    // Arriving data counts as movement too, but it does not show that an action has been measured.
    const auto allowed = measured && watched.ever_moved ? limit : unmeasured;
    // A process that makes progress proves that the pipeline does: the others wait for it.
    if (now - watched.moved <= allowed) return std::nullopt;
    if (!first || watched.moved < watched_.at(*first).moved) first = name;
  }
  if (!first) return std::nullopt;
  return diagnose(*first, now);
}

std::optional<StallDiagnosis> Watchdog::standstill(Time now, double median_step_seconds) const {
  const auto step = std::chrono::duration_cast<Time::duration>(Seconds(median_step_seconds));
  const auto limit = std::max<Time::duration>(limits_.standstill, step);
  if (!training_ || limits_.standstill.count() == 0) return std::nullopt;
  std::optional<net::ProcessName> first;
  for (const auto& [name, watched] : watched_) {
    if (watched.finished) continue;
    if (!watched.latest || now - watched.moved <= limit) return std::nullopt;
    if (!first || watched.moved < watched_.at(*first).moved) first = name;
  }
  if (!first) return std::nullopt;
  return diagnose(*first, now);
}

std::optional<std::string> Watchdog::standstill_change(Time now, double median_step_seconds) {
  const auto still = standstill(now, median_step_seconds);
  if (still.has_value() == std::exchange(still_, still.has_value())) return std::nullopt;
  return still ? still->sentence : std::string();
}

StallDiagnosis Watchdog::diagnose(net::ProcessName first, Time now) const {
  const auto is_silent = [now](const Watched& one) {
    return one.heard && now - *one.heard > kReportIsOld;
  };
  std::vector<net::ProcessName> chain{first};
  std::optional<net::ProcessName> beyond;  // at the end of a path that is down
  bool cycle = false;
  while (!cycle) {
    const Watched& last = watched_.at(chain.back());
    // The wait in an old report may have ended.
    if (!last.latest || is_silent(last)) break;
    const auto next = last.latest->waits_on;
    if (!next || !watched_.contains(*next) || watched_.at(*next).finished) break;
    // At the end of a path that is down, only a silent process is a cause.
    if (last.latest->path_is_down && !is_silent(watched_.at(*next))) {
      beyond = next;
      break;
    }
    cycle = std::find(chain.begin(), chain.end(), *next) != chain.end();
    chain.push_back(*next);
  }
  const net::ProcessName culprit = chain.back();
  const Watched& end = watched_.at(culprit);
  std::string why = "it has not reported what it does";
  if (end.latest) {
    why = !end.latest->waits_for.empty()
              ? end.latest->waits_for
              : fmt::format("it is in {} of micro-batch {} at step {}", end.latest->phase,
                            end.latest->micro_batch, store::number(end.latest->step));
  }
  if (is_silent(end)) {
    why = fmt::format(
        "it has sent nothing for {:.0f} s (before: {}): its process is stopped, stuck or cut off",
        seconds_between(*end.heard, now), why);
  }
  if (beyond && std::ranges::find(chain, *beyond) == chain.end()) chain.push_back(*beyond);
  const std::vector<std::string> names = descriptions(chain);
  if (cycle) {
    why =
        fmt::format("the processes wait in a cycle, {}; {}", fmt::join(names, " waits for "), why);
  } else if (chain.size() > 1) {
    why += fmt::format("; {}", fmt::join(names, " waits for "));
  }
  return {culprit, fmt::format("{}: no progress for {:.0f} s: {}", culprit.describe(),
                               seconds_between(end.moved, now), why)};
}

}  // namespace strait::run
