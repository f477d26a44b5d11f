#include "launcher/cli/console.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace strait::cli {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;
using Style = ConsoleOptions::Style;
using store::Step;

class Paper : public base::TextSink {
 public:
  void write(std::string text, bool passing) override {
    all += text;
    if (!passing) lasting += text;
  }
  std::string all;
  std::string lasting;
};

class ConsoleTest : public testing::Test {
 protected:
  Console& console(Style style, std::size_t columns = 200) {
    console_ = std::make_unique<Console>(
        paper_,
        ConsoleOptions{style, [columns] { return columns; }, 1000ms, [this] { return now_; }});
    return *console_;
  }
  static run::StepLine line(std::int64_t step) {
    run::StepLine line;
    line.step = Step{step};
    line.loss = 0.412;
    line.learning_rate = 8.1e-4;
    line.tokens = 4096;
    line.seconds = 0.25;
    line.tokens_per_second = 12'345;
    line.idle = 0.12;
    return line;
  }
  // A second passes, in which 5.3875 MB cross the link.
  void second(Console& console) {
    now_ += 1s;
    bytes_ += 5'387'500;
    run::ProcessReport first{{0, 0}, "a", 1, run::Progress{}, 0};
    first.progress->phase = "forward";
    first.progress->links = {{"boundary 0>1", "stage 1.0", bytes_, 0}};
    run::ProcessReport other{{1, 0}, "b", 2, run::Progress{}, 0};
    other.progress->waits_for = "stage 1.0 waits 3 s for forward of micro-batch 0 from stage 0.0";
    console.reports({first, other});
  }
  static run::Outcome broken() {
    run::Outcome outcome;
    outcome.code = base::ExitCode::peer_lost;
    outcome.cause = "stage 1.0 (host b): killed by signal 9";
    outcome.culprit = net::ProcessName{1, 0};
    outcome.host = "b";
    outcome.log_tail = {"one", "two"};
    outcome.followers = {"stage 0.0 (host a): lost stage 1.0"};
    outcome.step = Step{118};
    outcome.checkpoint = Step{100};
    return outcome;
  }

  Paper paper_;
  std::chrono::steady_clock::time_point now_{100h};
  std::uint64_t bytes_ = 0;
  std::unique_ptr<Console> console_;
};

TEST_F(ConsoleTest, PlainStyleLimitsLinesPerSecondExceptFirstAndLast) {
  Console& out = console(Style::plain);
  out.plan("stage 0 runs layers 0 to 5", "{}");
  out.connected({{1, 0}, 4711, "b", "x"});
  out.training(Step{}, Step{300});
  second(out);
  second(out);
  out.step(line(1));
  out.step(line(2));  // within the same second: held back
  second(out);
  out.step(line(3));
  out.step(line(300));
  out.evaluated({Step{300}, 0.5, 4096});
  out.checkpointed(Step{300});
  out.ended({});
  out.finish({"results: runs/dates"});
  EXPECT_EQ(paper_.all,
            "stage 0 runs layers 0 to 5\n"
            "stage 1.0 is up on b (pid 4711)\n"
            "training 300 steps\n"
            "step 1/300 · loss 0.412 · lr 8.1e-4 · 12.3k tok/s · 0>1 43.1 Mbit/s · idle 12 % · "
            "ETA 1:15\n"
            "step 3/300 · loss 0.412 · lr 8.1e-4 · 12.3k tok/s · 0>1 43.1 Mbit/s · idle 12 % · "
            "ETA 1:14\n"
            "step 300/300 · loss 0.412 · lr 8.1e-4 · 12.3k tok/s · 0>1 43.1 Mbit/s · idle 12 % · "
            "ETA 0:00\n"
            "evaluation at step 300: loss 0.5 over 4096 tokens\n"
            "checkpoint at step 300\n"
            "results: runs/dates\n");
  EXPECT_THAT(paper_.all, Not(HasSubstr("\x1b")));
  EXPECT_THAT(paper_.all, Not(HasSubstr("\r")));
}

TEST_F(ConsoleTest, TablesAtTheEndSayThatTheyAreSums) {
  Console& out = console(Style::plain);
  out.training(Step{}, Step{300});
  for (const std::int64_t number : {4, 5}) {
    run::StepLine one = line(number);
    trace::BoundaryMetrics boundary;
    boundary.sent_bytes = 500;
    one.boundaries = {boundary};
    out.step(one);
  }
  out.ended({});
  EXPECT_THAT(paper_.all, HasSubstr("boundary traffic, summed over steps 4 to 5; change, error, "
                                    "cached: of the last one\nboundary "));
  EXPECT_THAT(paper_.all, HasSubstr(" 1.0 kB "));
}

TEST_F(ConsoleTest, StoppedRunShowsItsLastStep) {
  Console& out = console(Style::plain);
  out.training(Step{}, Step{300});
  out.step(line(1));
  out.step(line(2));
  out.ended({});
  EXPECT_THAT(paper_.all, HasSubstr("step 2/300"));
}

TEST_F(ConsoleTest, LiveStyleReplacesOneLine) {
  Console& out = console(Style::live);
  out.training(Step{}, Step{300});
  out.step(line(1));
  out.step(line(2));
  out.step(line(3));
  EXPECT_THAT(paper_.all, HasSubstr("\r\x1b[Kstep 2/300"));
  EXPECT_THAT(paper_.all, HasSubstr("\r\x1b[Kstep 3/300"));
  EXPECT_THAT(paper_.lasting, HasSubstr("\r\x1b[Kstep 1/300"));
  EXPECT_THAT(paper_.lasting, Not(HasSubstr("step 2/300")));
  out.ended({});
  EXPECT_THAT(paper_.lasting, HasSubstr("step 3/300"));
  EXPECT_EQ(paper_.lasting.back(), '\n');
}

TEST_F(ConsoleTest, LiveLineIsNeverWiderThanTerminal) {
  Console& out = console(Style::live, 40);
  out.training(Step{}, Step{300});
  out.step(line(1));
  paper_.all.clear();
  out.step(line(2));
  EXPECT_EQ(paper_.all, "\r\x1b[Kstep 2/300 · loss 0.412 · lr 8.1e-4 · 1");
}

TEST_F(ConsoleTest, LiveStyleReportsWaitsWithoutSteps) {
  Console& out = console(Style::live);
  second(out);
  EXPECT_THAT(paper_.all, Not(HasSubstr("waits")));
  second(out);
  EXPECT_THAT(paper_.all, HasSubstr("stage 0.0: forward · stage 1.0 waits 3 s for forward"));
}

TEST_F(ConsoleTest, PlainStyleReportsLongWaitsRarely) {
  Console& out = console(Style::plain);
  for (int i = 0; i < 65; ++i) second(out);
  std::size_t lines = 0;
  for (const char c : paper_.all) lines += c == '\n' ? 1 : 0;
  EXPECT_EQ(lines, 2U);
}

TEST_F(ConsoleTest, FailureHasCauseCodeStateLogAndFollowers) {
  Console& out = console(Style::plain);
  out.ended(broken());
  EXPECT_EQ(paper_.all,
            "\n"
            "strait: stage 1.0 (host b): killed by signal 9\n"
            "  exit code 20 (peer lost), 118 steps done; last checkpoint: step 100\n"
            "  the last 2 lines of its log:\n"
            "    | one\n"
            "    | two\n"
            "  failures that followed:\n"
            "    stage 0.0 (host a): lost stage 1.0\n");
}

TEST_F(ConsoleTest, RemovesControlCharactersFromMessages) {
  Console& out = console(Style::live);
  out.event("stage 1.0", {"x", "\x1b]0;title\x07\r\nfake"});
  EXPECT_EQ(paper_.all, "\r\x1b[Kstage 1.0: ]0;titlefake\n");
}

TEST_F(ConsoleTest, JsonHasOneEventPerLineAndReadsBackExactly) {
  Console& out = console(Style::json);
  out.plan("text for people", R"({"stages":2})");
  out.connected({{1, 0}, 4711, "b", "x"});
  out.training(Step{}, Step{300});
  run::StepLine exact = line(1);
  exact.loss = 0.1 + 0.2;
  out.step(exact);
  out.evaluated({Step{1}, 0.5, 4096});
  out.checkpointed(Step{1});
  out.checkpoint_failed(Step{2}, "no room");
  out.event("stage 1.0", {"x", "two\nlines"});
  out.stopping(false);
  out.ended(broken());
  out.finish({"a", "b"});
  std::istringstream lines(paper_.all);
  std::vector<nlohmann::json> events;
  for (std::string text; std::getline(lines, text);) {
    events.push_back(nlohmann::json::parse(text));
    EXPECT_TRUE(events.back().contains("event")) << text;
  }
  ASSERT_EQ(events.size(), 11U);
  EXPECT_EQ(events[0].at("plan").at("stages"), 2);
  EXPECT_EQ(events[3].at("event"), "step");
  EXPECT_EQ(events[3].at("loss").get<double>(), 0.1 + 0.2);
  EXPECT_EQ(events[3].at("tokens"), 4096);
  EXPECT_EQ(events[9].at("event"), "ended");
  EXPECT_EQ(events[9].at("code"), 20);
  EXPECT_EQ(events[9].at("culprit"), "1.0");
  EXPECT_EQ(events[9].at("checkpoint"), 100);
}

}  // namespace
}  // namespace strait::cli
