#include "launcher/run/slow_parts.h"

#include <cmath>
#include <random>

namespace strait::run {
namespace {

constexpr std::size_t kWithin = 20;  // steps

// A run of some stages and replicas: what it would measure, step by step, with noise.
class Trace {
 public:
  Trace(std::uint64_t seed, double noise)
      : random_(seed),
        noise_(noise),
        stages_(2 + static_cast<std::uint32_t>(random_() % 5)),
        replicas_(1 + static_cast<std::uint32_t>(random_() % 3)),
        rate_(std::exp(std::uniform_real_distribution(std::log(1e5), std::log(1e8))(random_))),
        step_(std::exp(std::uniform_real_distribution(std::log(0.01), std::log(20.0))(random_))) {
    for (std::uint32_t stage = 0; stage < stages_; ++stage) {
      const double share = std::uniform_real_distribution(0.3, 1.0)(random_);
      // The plan's seconds are of another machine, and its shares are off.
      const double planned =
          3 * share * std::exp(std::uniform_real_distribution(-0.25, 0.25)(random_));
      for (std::uint32_t replica = 0; replica < replicas_; ++replica) {
        const net::ProcessName process{stage, replica};
        share_[process] = share;
        expected_.processes[process] = {planned, false, "h"};
        if (stage + 1 == stages_) continue;
        const net::ProcessName next{stage + 1, replica};
        links_.push_back({"boundary " + process.text() + ">" + next.text(), process});
        links_.push_back({links_.back().first, next});
      }
    }
    if (random_() % 2 == 0) {
      for (const auto& link : links_) expected_.links[link] = {rate_, 0};
    }
  }

  using LinkOf = std::pair<std::string, net::ProcessName>;

  const ExpectedSpeeds& expected() const { return expected_; }
  const std::vector<LinkOf>& links() const { return links_; }
  net::ProcessName process(std::size_t index) const {
    return {static_cast<std::uint32_t>(index % stages_),
            static_cast<std::uint32_t>(index / stages_ % replicas_)};
  }
  std::uint32_t stages() const { return stages_; }
  std::uint32_t replicas() const { return replicas_; }
  double step_seconds() const { return step_; }

  // Divides the speed of one part.
  void slow_link(const LinkOf& link, double times) { link_slower_[link] = times; }
  void slow_process(net::ProcessName process, double times) { process_slower_[process] = times; }

  StepLine next() {
    StepLine line;
    line.step = store::Step{++made_};
    // Once in a while the whole machine has other work.
    const double machine = random_() % 20 == 0 ? 3 : 1;
    double longest = 0;
    for (const auto& [process, share] : share_) {
      trace::StepMetrics metrics;
      const auto slower = process_slower_.find(process);
      metrics.busy_seconds = share * step_ * machine * noise() *
                             (slower == process_slower_.end() ? 1 : slower->second);
      longest = std::max(longest, metrics.busy_seconds);
      line.processes.emplace_back(process, metrics);
    }
    for (const LinkOf& link : links_) {
      const auto slower = link_slower_.find(link);
      const double rate =
          rate_ / noise() / machine / (slower == link_slower_.end() ? 1 : slower->second);
      // Links take half of the step when they are as they should be.
      const auto bytes = static_cast<std::uint64_t>(rate_ * step_ / 2);
      line.links.push_back({{link.first, "", bytes, 0, rate}, link.second});
      longest = std::max(longest, static_cast<double>(bytes) / rate);
    }
    line.seconds = longest * 1.1;
    return line;
  }

 private:
  double noise() { return std::exp(std::normal_distribution(0.0, noise_)(random_)); }

  std::mt19937_64 random_;
  double noise_;
  std::uint32_t stages_;
  std::uint32_t replicas_;
  double rate_;
  double step_;
  std::map<net::ProcessName, double> share_;
  std::vector<LinkOf> links_;
  ExpectedSpeeds expected_;
  std::map<LinkOf, double> link_slower_;
  std::map<net::ProcessName, double> process_slower_;
  std::int64_t made_ = 0;
};

TEST(SlowParts, NamesNothingInThousandQuietRuns) {
  for (std::uint64_t seed = 1; seed <= 1'000; ++seed) {
    SCOPED_TRACE(seed);
    Trace trace(seed, 0.05 * static_cast<double>(seed % 5));  // up to 20 %
    SlowParts parts(trace.expected());
    for (int step = 0; step < 100; ++step) {
      for (const SlowParts::Change& change : parts.add(trace.next())) {
        FAIL() << "step " << step << ": " << change.sentence;
      }
    }
  }
}

TEST(SlowParts, NamesTheSlowLinkWithinTwentySteps) {
  int runs = 0;
  for (std::uint64_t seed = 1; seed <= 600; ++seed) {
    SCOPED_TRACE(seed);
    Trace trace(seed, 0.1);
    // Two stages and one replica have no like links: then the plan has to know.
    const bool compared =
        trace.stages() > 2 || trace.replicas() > 1 || !trace.expected().links.empty();
    if (!compared || trace.step_seconds() < 0.1) continue;
    ++runs;
    const Trace::LinkOf slow = trace.links()[seed % trace.links().size()];
    const std::size_t begins = seed % 50;
    SlowParts parts(trace.expected());
    std::size_t named = 0;
    for (std::size_t step = 0; step < begins + kWithin && named == 0; ++step) {
      if (step == begins) trace.slow_link(slow, 2.6 + static_cast<double>(seed % 9));
      for (const SlowParts::Change& change : parts.add(trace.next())) {
        named = step;
        EXPECT_TRUE(change.slow);
        EXPECT_THAT(change.sentence, testing::HasSubstr(slow.first));
        EXPECT_THAT(change.sentence, testing::HasSubstr("from " + slow.second.describe()));
        EXPECT_THAT(change.sentence, testing::HasSubstr("Mbit/s"));
      }
    }
    EXPECT_GE(named, begins) << "named too early";
    EXPECT_GT(named, 0U) << "not named within 20 steps";
    EXPECT_EQ(parts.sentences().size(), 1U);
    // And taken back when it is as it should be.
    trace.slow_link(slow, 1);
    for (std::size_t step = 0; step < kWithin; ++step) parts.add(trace.next());
    EXPECT_THAT(parts.sentences(), testing::IsEmpty());
  }
  EXPECT_GT(runs, 250);
}

TEST(SlowParts, NamesTheSlowProcessWithinTwentySteps) {
  int runs = 0;
  for (std::uint64_t seed = 1; seed <= 2'000; ++seed) {
    SCOPED_TRACE(seed);
    Trace trace(seed, 0.1);
    if (trace.step_seconds() < 0.5 || trace.stages() * trace.replicas() < 3) continue;
    ++runs;
    const net::ProcessName slow = trace.process(seed);
    trace.slow_process(slow, 5);
    SlowParts parts(trace.expected());
    std::size_t named = 0;
    for (std::size_t step = 1; step <= kWithin && named == 0; ++step) {
      for (const SlowParts::Change& change : parts.add(trace.next())) {
        named = step;
        EXPECT_THAT(change.sentence, testing::HasSubstr(slow.describe() + " (host h)"));
      }
    }
    EXPECT_GT(named, 0U);
  }
  EXPECT_GT(runs, 500);
}

TEST(SlowParts, DoNotTakeAHostThatIsBusyForASecondForASlowOne) {
  Trace trace(8, 0);
  SlowParts parts(trace.expected());
  for (int step = 0; step < 100; ++step) {
    StepLine line = trace.next();
    const bool busy = step >= 50 && step < 62;
    for (auto& [process, metrics] : line.processes) metrics.busy_seconds = 0.01;
    if (busy) line.processes[0].second.busy_seconds = 0.09;
    line.seconds = busy ? 0.1 : 0.05;
    line.links.clear();
    EXPECT_THAT(parts.add(line), testing::IsEmpty());
  }
}

TEST(SlowParts, SayNothingOfWhatCostsNoTime) {
  Trace trace(3, 0);
  SlowParts parts(trace.expected());
  trace.slow_link(trace.links()[0], 10);
  for (int step = 0; step < 50; ++step) {
    StepLine line = trace.next();
    for (StepLine::LinkBytes& link : line.links) link.sent_bytes /= 1'000;
    EXPECT_THAT(parts.add(line), testing::IsEmpty());
  }
}

constexpr double kLine = 2.5e6;  // bytes per second: 20 Mbit/s

// What was seen with links of 20 Mbit/s each, two of which once seemed five times as fast.
TEST(SlowParts, NameNoLinkThatDoesWhatThePlanSays) {
  ExpectedSpeeds expected;
  StepLine line;
  line.seconds = 0.25;
  for (std::uint32_t stage = 0; stage < 2; ++stage) {
    for (std::uint32_t replica = 0; replica < 2; ++replica) {
      const std::string name = fmt::format("replica {0}.0~{0}.1", stage);
      const net::ProcessName sender{stage, replica};
      expected.links[{name, sender}] = {kLine, 0.01};
      const double rate = stage == 0 || replica == 1 ? 5 * kLine : 0.95 * kLine;
      line.links.push_back({{name, "", 240'000, 0, rate}, sender});
    }
  }
  SlowParts parts(expected);
  for (std::size_t step = 0; step < kWithin; ++step) {
    EXPECT_THAT(parts.add(line), testing::IsEmpty());
  }
  line.links[2].bytes_per_second = kLine / 2.6;
  for (std::size_t step = 0; step < kWithin; ++step) parts.add(line);
  ASSERT_EQ(parts.sentences().size(), 1U);
  EXPECT_THAT(parts.sentences()[0], testing::HasSubstr("replica 1.0~1.1 carries 7.69 Mbit/s"));
  EXPECT_THAT(parts.sentences()[0], testing::HasSubstr("the plan has 20:"));
}

// Some hosts. Each sends over one to four links that share its line. Which of them are
// busy at the same time changes now and then; what they measure is off by errors that last.
class SharedLines {
 public:
  explicit SharedLines(std::uint64_t seed) : random_(seed), planned_(random_() % 2 == 0) {
    const std::size_t hosts = 2 + random_() % 3;
    for (std::size_t host = 0; host < hosts; ++host) {
      on_.push_back(host == 0 ? 2 + random_() % 3 : 1 + random_() % 4);
      const auto stage = static_cast<std::uint32_t>(host);
      for (std::uint32_t i = 0; i < on_[host]; ++i) {
        const net::ProcessName sender{stage, i};
        links_.push_back({host, {fmt::format("replica {0}.{1}~{0}.9", host, i), sender}});
        expected_.links[links_.back().key] = {planned_ ? kLine : 0, 0, fmt::format("h{}", host),
                                              fmt::format("h{}", (host + 1) % hosts)};
      }
    }
  }

  const ExpectedSpeeds& expected() const { return expected_; }
  bool planned() const { return planned_; }
  std::size_t links_of_first_host() const { return on_[0]; }
  void slow_first_host(double times) { slower_ = times; }

  StepLine next() {
    constexpr double kStep = 1;
    const auto bytes = static_cast<std::uint64_t>(kLine * kStep / 2 / static_cast<double>(on_[0]));
    StepLine line;
    line.seconds = kStep / 2;
    for (Sharing& one : links_) {
      if (one.busy == 0 || random_() % 10 == 0) one.busy = 1 + random_() % on_[one.host];
      one.error = 0.8 * one.error + 0.6 * std::normal_distribution(0.0, 0.15)(random_);
      const double rate = kLine / (one.host == 0 ? slower_ : 1) / static_cast<double>(one.busy) *
                          std::exp(one.error);
      line.links.push_back({{one.key.first, "", bytes, 0, rate}, one.key.second});
      line.seconds = std::max(line.seconds, static_cast<double>(bytes) / rate);
    }
    line.seconds *= 1.1;
    return line;
  }

 private:
  struct Sharing {
    std::size_t host = 0;
    Trace::LinkOf key;
    std::size_t busy = 0;  // links of its line at the same time
    double error = 0;
  };
  std::mt19937_64 random_;
  bool planned_;
  std::vector<std::size_t> on_;  // links of each host
  std::vector<Sharing> links_;
  ExpectedSpeeds expected_;
  double slower_ = 1;
};

TEST(SlowParts, NameNoLinkThatSharesItsLineInThousandQuietRuns) {
  for (std::uint64_t seed = 1; seed <= 1'000; ++seed) {
    SCOPED_TRACE(seed);
    SharedLines lines(seed);
    SlowParts parts(lines.expected());
    for (int step = 0; step < 120; ++step) {
      for (const SlowParts::Change& change : parts.add(lines.next())) {
        FAIL() << "step " << step << ": " << change.sentence;
      }
    }
  }
}

TEST(SlowParts, NameTheLinksOfASlowLineOnceAndTakeThemBackOnce) {
  int runs = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE(seed);
    SharedLines lines(seed);
    if (!lines.planned()) continue;
    ++runs;
    SlowParts parts(lines.expected());
    std::map<std::string, int> named;
    std::size_t first = 0;
    for (std::size_t step = 0; step < 140; ++step) {
      // Slow even if all links of the host are busy at the same time.
      if (step == 30) lines.slow_first_host(2.6 * static_cast<double>(lines.links_of_first_host()));
      if (step == 80) lines.slow_first_host(1);
      for (const SlowParts::Change& change : parts.add(lines.next())) {
        EXPECT_THAT(change.sentence, testing::StartsWith("replica 0."));
        EXPECT_GE(step, 30U) << change.sentence;
        if (change.slow && first == 0) first = step;
        named[change.sentence.substr(0, change.sentence.find('~'))] += change.slow ? 1 : 100;
      }
    }
    EXPECT_GE(first, 30U);
    EXPECT_LT(first, 30 + kWithin);
    for (const auto& [name, changes] : named) EXPECT_EQ(changes, 101) << name;
    EXPECT_THAT(parts.sentences(), testing::IsEmpty());
  }
  EXPECT_GT(runs, 150);
}

// About half as fast as the others, with noise: named, or not, but not again and again.
TEST(SlowParts, DoNotChangeTheirMindAboutALinkAtTheLimit) {
  int changes = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(seed);
    Trace trace(seed, 0.1);
    if (trace.expected().links.empty() || trace.step_seconds() < 0.1) continue;
    trace.slow_link(trace.links()[0], 2);
    SlowParts parts(trace.expected());
    int changed = 0;
    for (int step = 0; step < 400; ++step) {
      changed += static_cast<int>(parts.add(trace.next()).size());
    }
    EXPECT_LE(changed, 3);
    changes += changed;
  }
  EXPECT_GT(changes, 0);
}

TEST(SlowParts, CountTheTimeThatMessagesAreInFlightAsPlanned) {
  const net::ProcessName first{0, 0};
  const std::string name = "boundary 0.0>1.0";
  StepLine line;
  line.seconds = 1;
  // A path of 1 MB/s and 8 messages of 12.5 kB with a round trip of 50 ms each.
  line.links = {{{name, "", 100'000, 0, 100'000 / 0.5}, first}};
  const auto named = [&](double waiting) {
    ExpectedSpeeds expected;
    expected.links[{name, first}] = {1e6, waiting};
    SlowParts parts(expected);
    for (std::size_t step = 0; step < kWithin; ++step) parts.add(line);
    return !parts.sentences().empty();
  };
  EXPECT_FALSE(named(8 * 0.05));
  EXPECT_TRUE(named(8 * 0.001));
}

}  // namespace
}  // namespace strait::run
