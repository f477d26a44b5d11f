#include "launcher/run/slow_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "launcher/base/median.h"

namespace strait::run {
namespace {

constexpr double kSlow = 2;             // times as long as expected
constexpr double kStillSlow = 1.5;      // of a link: the same, after it was named
constexpr double kShare = 0.25;         // the least fraction of a step
constexpr double kStillShare = 0.1;     // of a link: the same, after it was named
constexpr double kLeastSeconds = 0.05;  // the least duration; shorter ones are noise
constexpr std::int64_t kWarmUp = 2;     // steps of a launch that are not counted
constexpr double kNameShare = 0.75;     // named if this fraction of the latest steps was slow
constexpr double kClearShare = 0.375;   // no longer named if at most this fraction was slow
constexpr double kSimilarBytes = 2;     // ratio of bytes up to which two links are comparable

bool matters(double seconds, double step, double share = kShare) {
  return seconds >= kLeastSeconds && seconds >= share * step;
}

std::pair<std::string, net::ProcessName> key_of(const StepLine::LinkBytes& one) {
  return {one.name, one.sender};
}

double seconds_of(const StepLine::LinkBytes& one) {
  return static_cast<double>(one.sent_bytes) / one.bytes_per_second;
}

// Two links are comparable if they have the same use and direction and similar bytes.
bool is_comparable(const StepLine::LinkBytes& one, const StepLine::LinkBytes& other) {
  const auto use = [](const StepLine::LinkBytes& link) {
    return link.name.substr(0, link.name.find(' '));
  };
  const auto downstream = [](const StepLine::LinkBytes& link) {
    return link.name.find(' ' + link.sender.text()) != std::string::npos;
  };
  const auto bytes = [](const StepLine::LinkBytes& link) {
    return static_cast<double>(link.sent_bytes);
  };
  return use(one) == use(other) && downstream(one) == downstream(other) &&
         bytes(one) <= kSimilarBytes * bytes(other) && bytes(other) <= kSimilarBytes * bytes(one);
}

double megabits(double bytes_per_second) { return bytes_per_second * 8 / 1e6; }

}  // namespace

void SlowParts::note_rates(const StepLine& line) {
  for (const StepLine::LinkBytes& one : line.links) {
    std::deque<double>& rates = links_[key_of(one)].rates;
    if (one.bytes_per_second > 0) rates.push_back(one.bytes_per_second);
    if (rates.size() > kWindow) rates.pop_front();
  }
}

// The bytes of all links that share this link's line, which may have carried them all meanwhile.
double SlowParts::line_bytes(const StepLine& line, const StepLine::LinkBytes& one) const {
  const auto known = expected_.links.find(key_of(one));
  if (known == expected_.links.end() || known->second.from.empty()) {
    return static_cast<double>(one.sent_bytes);
  }
  double up = 0;
  double down = 0;
  for (const StepLine::LinkBytes& other : line.links) {
    const auto its = expected_.links.find(key_of(other));
    if (its == expected_.links.end()) continue;
    const auto bytes = static_cast<double>(other.sent_bytes);
    if (its->second.from == known->second.from) up += bytes;
    if (its->second.to == known->second.to) down += bytes;
  }
  // The link waits for whichever side of its line is busier.
  return std::max(up, down);
}

// The median speed of comparable links; 0: there are none. For each link the lower quartile of its
// latest rates, because rates that scatter prove less.
double SlowParts::usual_rate(const StepLine& line, const StepLine::LinkBytes& one) const {
  std::vector<double> usual;
  for (const StepLine::LinkBytes& other : line.links) {
    if (key_of(other) == key_of(one) || !is_comparable(one, other)) continue;
    const std::deque<double>& latest = links_.at(key_of(other)).rates;
    if (latest.empty()) continue;
    std::vector<double> rates(latest.begin(), latest.end());
    std::ranges::sort(rates);
    usual.push_back(rates[rates.size() / 4]);
  }
  return usual.empty() ? 0 : base::median(usual);
}

std::string SlowParts::judge_link(const StepLine& line, const StepLine::LinkBytes& one,
                                  bool slow) const {
  if (one.bytes_per_second <= 0 || one.sent_bytes == 0) return "";
  const double seconds = seconds_of(one);
  if (!matters(seconds, line.seconds, slow ? kStillShare : kShare)) return "";
  const auto sentence = [&](double reference, const char* basis) {
    return fmt::format(
        "{} carries {:.3g} Mbit/s from {}, where {} {:.3g}: {:.2g} s of a step of "
        "{:.2g} s",
        one.name, megabits(one.bytes_per_second), one.sender.describe(), basis, megabits(reference),
        seconds, line.seconds);
  };
  const double times = slow ? kStillSlow : kSlow;
  const double bytes = line_bytes(line, one);
  const auto known = expected_.links.find(key_of(one));
  if (known != expected_.links.end() && known->second.bytes_per_second > 0) {
    const ExpectedSpeeds::Link& link = known->second;
    const double planned = link.waiting + bytes / link.bytes_per_second;
    return seconds >= times * planned ? sentence(link.bytes_per_second, "the plan has") : "";
  }
  const double usual = usual_rate(line, one);
  return times * bytes / seconds <= usual ? sentence(usual, "links like it carry") : "";
}

std::string SlowParts::judge_process(const StepLine& line, const net::ProcessName& process,
                                     double busy) const {
  const auto own = expected_.processes.find(process);
  if (own == expected_.processes.end() || own->second.compute_seconds <= 0) return "";
  if (!matters(busy, line.seconds)) return "";
  const double ratio = busy / own->second.compute_seconds;
  std::vector<double> replicas;
  double slowest = 0;
  for (const auto& [other, metrics] : line.processes) {
    const auto known = expected_.processes.find(other);
    if (other == process || known == expected_.processes.end()) continue;
    if (known->second.compute_seconds <= 0) continue;
    const double others = metrics.busy_seconds / known->second.compute_seconds;
    slowest = std::max(slowest, others);
    if (other.stage == process.stage) replicas.push_back(others);
  }
  const auto sentence = [&](double reference, const char* basis) {
    return fmt::format(
        "{} (host {}) computes {:.2g} s of a step of {:.2g} s, {:.2g} times as long "
        "as {}",
        process.describe(), own->second.host, busy, line.seconds, ratio / reference, basis);
  };
  if (!replicas.empty() && ratio >= kSlow * base::median(replicas)) {
    return sentence(base::median(replicas), "other replicas of its stage");
  }
  if (own->second.measured && ratio >= kSlow)
    return sentence(1, "the plan has it from strait probe");
  // The plan's shares are forecasts; those of two processes alone say little.
  if (line.processes.size() > 2 && slowest > 0 && ratio >= kSlow * slowest) {
    return sentence(slowest, "the slowest other process for its share of the plan");
  }
  return "";
}

void SlowParts::note(Part& part, double seconds, std::string sentence, const std::string& name,
                     std::vector<Change>& changes) const {
  // Steps and not seconds are counted, so that one long pause is one slow step.
  part.recent.push_back({!sentence.empty(), seconds});
  double all = 0;
  for (const Step& step : part.recent) all += step.seconds;
  while (part.recent.size() > kWindow && all - part.recent.front().seconds >= part.least_seconds) {
    all -= part.recent.front().seconds;
    part.recent.pop_front();
  }
  if (!sentence.empty()) part.sentence = std::move(sentence);
  // Counted against a full window, so that few first steps do not name a part.
  const double share = static_cast<double>(std::ranges::count(part.recent, true, &Step::slow)) /
                       static_cast<double>(std::max(part.recent.size(), kWindow));
  if (!part.slow && share >= kNameShare && all >= part.least_seconds) {
    part.slow = true;
    changes.push_back({true, part.sentence});
  } else if (part.slow && share <= kClearShare) {
    part.slow = false;
    changes.push_back({false, name + " is no longer slow"});
  }
}

std::vector<SlowParts::Change> SlowParts::add(const StepLine& line) {
  std::vector<Change> changes;
  if (++steps_ <= kWarmUp) return changes;
  note_rates(line);
  for (const StepLine::LinkBytes& one : line.links) {
    Part& part = links_[key_of(one)];
    note(part, line.seconds, judge_link(line, one, part.slow),
         fmt::format("{} from {}", one.name, one.sender.describe()), changes);
  }
  for (const auto& [process, metrics] : line.processes) {
    Part& part = processes_[process];
    part.least_seconds = kProcessSeconds;
    note(part, line.seconds, judge_process(line, process, metrics.busy_seconds), process.describe(),
         changes);
  }
  return changes;
}

std::vector<std::string> SlowParts::sentences() const {
  std::vector<std::string> list;
  for (const auto& [link, part] : links_) {
    if (part.slow) list.push_back(part.sentence);
  }
  for (const auto& [process, part] : processes_) {
    if (part.slow) list.push_back(part.sentence);
  }
  return list;
}

}  // namespace strait::run
