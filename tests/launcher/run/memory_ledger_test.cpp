#include <gtest/gtest.h>

#include "launcher/base/errors.h"
#include "launcher/run/checkpoint_committer.h"
#include "tests/memory_links.h"

namespace strait::run {
namespace {

using store::Step;

const net::ProcessName kFirst{0, 0};
const net::ProcessName kSecond{1, 0};

class Holder : public MemoryHolder {
 public:
  void hold(Step step, std::vector<store::ShardFile> files) override {
    steps.push_back(step);
    latest = std::move(files);
  }
  std::vector<MemoryDecision> take_decisions() override { return std::exchange(decisions, {}); }

  std::vector<Step> steps;
  std::vector<store::ShardFile> latest;
  std::vector<MemoryDecision> decisions;
};

class Noted : public RunObserver {
 public:
  void in_memory(Step step, const std::string& place) override {
    lines.push_back(std::to_string(number(step)) + " " + place);
  }
  void event(const std::string& /*source*/, const Event& event) override {
    lines.push_back(event.text);
  }

  std::vector<std::string> lines;
};

// Two workers; the test reads what they are sent.
class MemoryLedgerTest : public testing::Test {
 protected:
  MemoryLedgerTest() : workers_(handles()) {
    for (Worker& worker : workers_.all()) worker.hello = Hello{worker.handle.name, 17, "a", "1"};
  }

  std::vector<WorkerHandle> handles() {
    std::vector<WorkerHandle> all;
    for (const net::ProcessName name : {kFirst, kSecond}) {
      auto [ours, theirs] = memory_links(net::ProcessName::coordinator(), name, "control");
      ends_.push_back(std::move(theirs));
      all.push_back({name, std::move(ours), nullptr, ""});
    }
    return all;
  }

  void add(net::ProcessName from, std::int64_t step) {
    ledger_.add(workers_.at(from), {.step = Step{step}, .files = {{from.text(), 10, "hash"}}});
  }
  void skip(net::ProcessName from, std::int64_t step, const std::string& problem = "") {
    ledger_.add(workers_.at(from), {.step = Step{step}, .failed = true, .problem = problem});
  }

  // What both workers were told since the last call: steps that are kept, and negative ones that
  // are given up.
  std::vector<std::int64_t> decided() {
    std::vector<std::int64_t> first;
    for (auto& end : ends_) {
      std::vector<std::int64_t> steps;
      while (const auto frame = end->receive_until(std::chrono::steady_clock::now())) {
        const auto message = std::get<CheckpointDecided>(parse_coordinator_message(*frame));
        EXPECT_TRUE(message.in_memory);
        steps.push_back(message.dropped ? -number(message.step) : number(message.step));
      }
      if (&end != &ends_.front()) {
        EXPECT_EQ(steps, first);
      }
      first = steps;
    }
    return first;
  }

  using Steps = std::vector<std::int64_t>;
  std::vector<std::unique_ptr<net::Link>> ends_;
  Workers workers_;
  Holder holder_;
  Noted noted_;
  const RunObservers observers_{{&noted_}};
  MemoryLedger ledger_{workers_, observers_, &holder_};
};

TEST_F(MemoryLedgerTest, IsHeldWhenAllHaveMadeTheirPart) {
  add(kSecond, 10);
  EXPECT_TRUE(holder_.steps.empty());
  add(kFirst, 10);
  ASSERT_EQ(holder_.steps, (std::vector{Step{10}}));
  ASSERT_EQ(holder_.latest.size(), 2U);
  EXPECT_EQ(holder_.latest[0].name, kFirst.text()) << "in the order of the processes";
  ledger_.poll(false);
  EXPECT_EQ(decided(), Steps());
  holder_.decisions = {{Step{10}, "two hosts", ""}};
  ledger_.poll(false);
  EXPECT_EQ(decided(), Steps{10});
  EXPECT_EQ(noted_.lines, (std::vector<std::string>{"10 two hosts"}));
}

// The second is late: it skips 20, whatever the first does, and both go on with 30.
TEST_F(MemoryLedgerTest, IsGivenUpWhenOneHasSkippedIt) {
  add(kFirst, 20);
  EXPECT_EQ(decided(), Steps()) << "not before the last one has reported";
  skip(kSecond, 20);
  EXPECT_TRUE(holder_.steps.empty());
  EXPECT_EQ(decided(), Steps{-20});
  EXPECT_TRUE(noted_.lines.empty());
  add(kFirst, 30);
  add(kSecond, 30);
  EXPECT_EQ(holder_.steps, (std::vector{Step{30}}));
}

TEST_F(MemoryLedgerTest, ReportsErrorOnceAndNoneOfAnEnd) {
  holder_.decisions = {{Step{10}, "", "no copy"}, {Step{20}, "", "no copy"}};
  ledger_.poll(false);
  holder_.decisions = {{Step{30}, "", "gone"}};
  ledger_.poll(true);
  EXPECT_EQ(noted_.lines, (std::vector<std::string>{"no copy"}));
  EXPECT_EQ(decided(), (Steps{-10, -20, -30}));
}

TEST_F(MemoryLedgerTest, NamesProcessThatFailed) {
  for (const std::int64_t step : {10, 20}) {
    skip(kFirst, step, "no room to write step " + std::to_string(step));
    add(kSecond, step);
  }
  ASSERT_EQ(noted_.lines.size(), 1U);
  EXPECT_EQ(noted_.lines.front(),
            "a checkpoint is not held in memory: " + workers_.at(kFirst).describe() +
                ": no room to write step 10");
  EXPECT_EQ(decided(), (Steps{-10, -20}));
}

TEST_F(MemoryLedgerTest, RefusesPartThatArrivesTwice) {
  add(kFirst, 10);
  EXPECT_THROW(add(kFirst, 10), base::MessageError);
}

}  // namespace
}  // namespace strait::run
