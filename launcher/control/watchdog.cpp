#include "launcher/control/watchdog.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace strait::control {
namespace {

using Seconds = std::chrono::duration<double>;

// A judge who looks several times a second and finds that so much time has passed was stopped
// himself: Ctrl-Z, a debugger, a machine that swaps.
constexpr auto kOwnPause = std::chrono::seconds(2);
constexpr double kSteps = 10;
// Nothing is known yet of how long one action takes: the first may be long.
constexpr int kFirstActionFactor = 5;
constexpr int kLateComerFactor = 4;
// A link gives up some seconds behind `hold`, and who waits over it says then which path is broken:
// that is worth more than a guess at who of those that wait for each other is stuck.
constexpr auto kLinksSpeakFirst = std::chrono::seconds(10);

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
  limits_.silence = std::max(limits_.silence, limits_.hold);
  if (limits_.hold.count() > 0) {
    limits_.progress = std::max(limits_.progress, limits_.hold + kLinksSpeakFirst);
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
  if (auto verdict = missing(now)) return verdict;
  if (auto verdict = silent(now)) return verdict;
  return stuck(now, median_step_seconds);
}

std::optional<StallDiagnosis> Watchdog::missing(Time now) const {
  // Where the others took long, the last ones may too.
  const auto adapted = std::max<Time::duration>(limits_.start, kLateComerFactor * longest_hello_);
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
                 fmt::format("{} did not say hello within {:.0f} s of the start",
                             fmt::join(names, ", "), seconds_between(start, now)),
                 true};
}

std::optional<StallDiagnosis> Watchdog::silent(Time now) const {
  const Watched* longest = nullptr;
  net::ProcessName who;
  for (const auto& [name, watched] : watched_) {
    if (watched.finished || !watched.heard || now - *watched.heard <= limits_.silence) continue;
    if (!longest || *watched.heard < *longest->heard) {
      longest = &watched;
      who = name;
    }
  }
  if (!longest) return std::nullopt;
  const std::string last =
      longest->latest ? fmt::format(" (its last words: {} at step {})", longest->latest->phase,
                                    store::number(longest->latest->step))
                      : std::string();
  return StallDiagnosis{who,
                 fmt::format("{} has said nothing for {:.1f} s, though it speaks every second: "
                             "its process is stopped, stuck or cut off{}",
                             who.describe(), seconds_between(*longest->heard, now), last),
                 true};
}

std::optional<StallDiagnosis> Watchdog::stuck(Time now, double median_step_seconds) const {
  const auto steps = std::chrono::duration_cast<Time::duration>(
      Seconds(kSteps * std::max(median_step_seconds, 0.0)));
  const auto limit = std::max<Time::duration>(limits_.progress, steps);
  std::optional<net::ProcessName> first;
  for (const auto& [name, watched] : watched_) {
    if (watched.finished || !watched.latest) continue;
    const auto allowed = watched.ever_moved ? limit : kFirstActionFactor * limit;
    // One that gets on is proof that the pipeline does: whoever waits for it waits rightly.
    if (now - watched.moved <= allowed) return std::nullopt;
    if (!first || watched.moved < watched_.at(*first).moved) first = name;
  }
  if (!first) return std::nullopt;
  return blame(*first, now);
}

StallDiagnosis Watchdog::blame(net::ProcessName first, Time now) const {
  std::vector<net::ProcessName> chain{first};
  bool circle = false;
  while (!circle) {
    const std::optional<Progress>& latest = watched_.at(chain.back()).latest;
    const auto next = latest ? latest->waits_on : std::nullopt;
    if (!next || !watched_.contains(*next) || watched_.at(*next).finished) break;
    circle = std::find(chain.begin(), chain.end(), *next) != chain.end();
    chain.push_back(*next);
  }
  const net::ProcessName culprit = chain.back();
  const Watched& end = watched_.at(culprit);
  std::string why = "it has not said what it does";
  if (end.latest) {
    why = !end.latest->waits_for.empty()
              ? end.latest->waits_for
              : fmt::format("it is in {} of micro-batch {} at step {}", end.latest->phase,
                            end.latest->micro_batch, store::number(end.latest->step));
  }
  const std::vector<std::string> names = descriptions(chain);
  if (circle) {
    why =
        fmt::format("the processes wait in a circle, {}; {}", fmt::join(names, " waits for "), why);
  } else if (chain.size() > 1) {
    why += fmt::format("; {}", fmt::join(names, " waits for "));
  }
  return {culprit, fmt::format("{} has not got on for {:.0f} s: {}", culprit.describe(),
                               seconds_between(end.moved, now), why)};
}

}  // namespace strait::control
