#include "launcher/run/slow_parts.h"

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

constexpr double kSlowStep = 10;          // times the median
constexpr double kLeastNamed = 1;         // of a named step, in seconds; shorter ones do not matter
constexpr std::int64_t kFewestSteps = 8;  // the median of fewer steps says little

// Processor time of all programs on a host, and of the run's own processes, in cores.
struct Use {
  double all = 0;
  double own = 0;
  double others() const { return std::max(all - own, 0.0); }
};

bool knows_speed(const plan::Plan& plan, const plan::PathSpeed& speed) {
  const recipe::Recipe::Hosts& hosts = plan.recipe.hosts;
  const bool simulated = hosts.simulate_link.empty() && hosts.simulate.bits_per_second > 0;
  return speed.measured || simulated || hosts.link_megabits.has_value();
}

std::map<net::ProcessName, SlowSteps::Host> hosts_of_processes(const plan::Plan& plan) {
  std::map<net::ProcessName, SlowSteps::Host> hosts;
  for (const plan::Plan::Process& process : plan.processes) {
    hosts[process.name] = {process.host, plan.hosts.at(process.host_index).cores};
  }
  return hosts;
}

// The speed expected of the bytes that `sender` sends. Links within a host and simulated links have
// no host names, so they are reported by their own names.
ExpectedSpeeds::Link expected_link(const plan::Plan& plan, net::ProcessName sender,
                                   net::ProcessName receiver, const plan::Plan::Link& link) {
  ExpectedSpeeds::Link expected;
  const std::size_t from = plan.process(sender).host_index;
  const std::size_t to = plan.process(receiver).host_index;
  if (from != to) {
    expected.from = plan.hosts.at(from).name;
    expected.to = plan.hosts.at(to).name;
  }
  const plan::PathSpeed speed = plan::path_speed(plan, from, to);
  if (!knows_speed(plan, speed)) return expected;
  // Each message of a boundary may wait for an answer; a round of replicas has a few messages.
  constexpr std::int64_t kTripsOfRound = 4;
  const std::int64_t trips =
      link.use == plan::Plan::Use::boundary ? plan.micro_batches_of(sender.replica) : kTripsOfRound;
  const double round_trip = speed.seconds + plan::path_speed(plan, to, from).seconds;
  expected.bytes_per_second = speed.bytes_per_second;
  expected.waiting = static_cast<double>(trips) * round_trip;
  return expected;
}

// The speeds that the plan expects of processes, and of the links whose speed is known: measured,
// simulated, or stated in the recipe.
ExpectedSpeeds expected_speeds(const plan::Plan& plan, const ModelQuestions& model) {
  ExpectedSpeeds expected;
  const std::map<net::ProcessName, double> seconds = model.compute_seconds(plan);
  for (const plan::Plan::Process& process : plan.processes) {
    // Without a table the speed is that of a block of about the same size, which is not enough.
    const bool measured =
        plan::compute_speed(plan, process).measured && !plan.recipe.hosts.links.empty();
    expected.processes[process.name] = {seconds.at(process.name), measured, process.host};
  }
  for (const plan::Plan::Link& link : plan.links) {
    expected.links[{link.name, link.connects}] =
        expected_link(plan, link.connects, link.listens, link);
    expected.links[{link.name, link.listens}] =
        expected_link(plan, link.listens, link.connects, link);
  }
  return expected;
}

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
        "{} carries {:.3g} Mbit/s from {}, where {} {:.3g}: {:.2g} s of a step of {:.2g} s",
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
        "{} (host {}) computes {:.2g} s of a step of {:.2g} s, {:.2g} times as long as {}",
        process.describe(), own->second.host, busy, line.seconds, ratio / reference, basis);
  };
  if (!replicas.empty() && ratio >= kSlow * base::median(replicas)) {
    return sentence(base::median(replicas), "other replicas of its stage");
  }
  if (own->second.measured && ratio >= kSlow)
    return sentence(1, "the plan has it from strait probe");
  // The plan's shares are forecasts; the shares of two processes alone say little.
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

// The host that other programs use most. All processes of a host see the same programs, but each in
// its own step, so the largest value counts.
std::string SlowSteps::load(const StepLine& line) const {
  std::map<std::string, Use> hosts;
  std::map<std::string, std::int64_t> cores;
  for (const auto& [process, metrics] : line.processes) {
    const auto host = hosts_.find(process);
    if (host == hosts_.end() || !metrics.host_cores) continue;
    Use& use = hosts[host->second.name];
    use.all = std::max(use.all, *metrics.host_cores);
    use.own += metrics.own_cores;
    cores[host->second.name] = host->second.cores;
  }
  if (hosts.empty()) return "";
  const auto most =
      std::ranges::max_element(hosts, {}, [](const auto& one) { return one.second.others(); });
  const std::int64_t of = cores.at(most->first);
  return fmt::format("; other programs kept {:.1f}{} cores of host {} busy", most->second.others(),
                     of == 0 ? "" : fmt::format(" of the {}", of), most->first);
}

std::string SlowSteps::add(const StepLine& line) {
  const double seconds = std::max(line.seconds - line.checkpoint_seconds, 0.0);
  const double usual = seconds_.median();
  const bool was_slow = slow_;
  slow_ = steps_ >= kFewestSteps && seconds >= kLeastNamed && seconds >= kSlowStep * usual;
  ++steps_;
  seconds_.add(seconds);
  if (!slow_ || was_slow) return "";
  return fmt::format("step {} took {:.2g} s, {:.2g} times the median of {:.2g} s{}",
                     number(line.step), seconds, seconds / usual, usual, load(line));
}

SlowObserver::SlowObserver(const plan::Plan& plan, const ModelQuestions& model,
                           std::vector<RunObserver*> observers)
    : slow_(expected_speeds(plan, model)),
      slow_steps_(hosts_of_processes(plan)),
      forecast_(plan),
      observers_(std::move(observers)) {}

void SlowObserver::step(const StepLine& line) {
  observers_.launcher_event({"slow", slow_steps_.add(line)});
  observers_.launcher_event({"off_plan", forecast_.add(line)});
  // Medians change little from step to step, and a step may take a millisecond.
  constexpr std::int64_t kTold = ForecastCheck::kWindow;
  if (++steps_ <= ForecastCheck::kWarmUp + kTold || steps_ % kTold == 0) {
    observers_.notify(&RunObserver::parts_measured, forecast_.table());
  }
  const std::vector<SlowParts::Change> changes = slow_.add(line);
  if (changes.empty()) return;
  for (const auto& change : changes) {
    observers_.launcher_event({change.slow ? "slow" : "not_slow", change.sentence});
  }
  observers_.notify(&RunObserver::slow_parts, slow_.sentences());
}

}  // namespace strait::run
