#include "launcher/run/memory_ledger.h"

#include <gtest/gtest.h>

#include "launcher/base/errors.h"
#include "tests/memory_links.h"

namespace strait::run {
namespace {

using store::Step;

const net::ProcessName kFirst{0, 0};
const net::ProcessName kSecond{1, 0};

class Holder : public MemoryHolder {
 public:
  void hold(Step step, std::vector<MemoryPart> parts) override {
    steps.push_back(step);
    latest = std::move(parts);
  }
  std::vector<MemoryDecision> take_decisions() override { return std::exchange(decisions, {}); }

  std::vector<Step> steps;
  std::vector<MemoryPart> latest;
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

  void add(net::ProcessName from, std::int64_t step, const std::string& skipped = "") {
    ShardsInMemory shards{Step{step}, {}, skipped};
    if (skipped.empty()) shards.shards = {{{from.text(), 10, "hash"}, 5}};
    ledger_.add(workers_.at(from), shards);
  }

  // Steps that both workers got to release since the last call.
  std::vector<std::int64_t> released() {
    std::vector<std::int64_t> first;
    for (auto& end : ends_) {
      std::vector<std::int64_t> steps;
      while (const auto frame = end->receive_until(std::chrono::steady_clock::now())) {
        const auto message = parse_coordinator_message(*frame);
        steps.push_back(number(std::get<MemoryReleased>(message).step));
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
  EXPECT_EQ(holder_.latest[0].process, kFirst) << "in the order of the processes";
  EXPECT_EQ(holder_.latest[0].pid, 17);
  ledger_.poll(false);
  EXPECT_EQ(released(), Steps());
  holder_.decisions = {{Step{10}, "two hosts", ""}};
  ledger_.poll(false);
  EXPECT_EQ(released(), Steps{10});
  EXPECT_EQ(noted_.lines, (std::vector<std::string>{"10 two hosts"}));
}

// The second is late: it skips 20, whatever the first does, and both go on with 30.
TEST_F(MemoryLedgerTest, IsGivenUpWhenOneHasSkippedIt) {
  add(kFirst, 20);
  add(kSecond, 20, "still on its way");
  EXPECT_TRUE(holder_.steps.empty());
  EXPECT_EQ(released(), Steps{20});
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
  EXPECT_EQ(released(), (Steps{10, 20, 30}));
}

TEST_F(MemoryLedgerTest, RefusesPartThatArrivesTwice) {
  add(kFirst, 10);
  EXPECT_THROW(add(kFirst, 10), base::MessageError);
}

}  // namespace
}  // namespace strait::run
