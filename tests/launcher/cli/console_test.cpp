#include "launcher/cli/console.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "framework/utf8.h"

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
  static trace::BoundaryMetrics boundary(const char* direction, std::uint64_t raw,
                                         std::uint64_t sent) {
    trace::BoundaryMetrics metrics;
    metrics.boundary = "0.0>1.0";
    metrics.direction = direction;
    metrics.raw_bytes = raw;
    metrics.sent_bytes = sent;
    return metrics;
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
            "step 300/300 · loss 0.412 · lr 8.1e-4 · 12.3k tok/s · 0>1 43.1 Mbit/s · idle 12 %\n"
            "evaluation at step 300: loss 0.5 over 4096 tokens\n"
            "checkpoint at step 300\n"
            "results: runs/dates\n");
  EXPECT_THAT(paper_.all, Not(HasSubstr("\x1b")));
  EXPECT_THAT(paper_.all, Not(HasSubstr("\r")));
}

TEST_F(ConsoleTest, OneLineAtTheEndSumsWhatWasSent) {
  Console& out = console(Style::plain);
  out.training(Step{}, Step{300});
  for (const std::int64_t number : {4, 5}) {
    run::StepLine one = line(number);
    one.boundaries = {boundary("forward", 4'000, 500), boundary("backward", 4'000, 1'500)};
    one.sync = {{.process = "0.0", .rounds = 1, .sent_bytes = 100, .bfloat16_bytes = 11'700}};
    out.step(one);
  }
  out.ended({});
  EXPECT_THAT(paper_.all,
              HasSubstr("\nsent      boundaries 4.0 kB (4.0x fewer than float32), replicas 200 B "
                        "(117.0x fewer than a bfloat16 all-reduce)\n"));
}

TEST_F(ConsoleTest, NothingIsSavedWhereReplicasSumInSharedMemory) {
  Console& out = console(Style::plain);
  out.training(Step{}, Step{300});
  run::StepLine one = line(4);
  one.sync = {{.process = "0.0", .rounds = 1, .sent_bytes = 100, .bfloat16_bytes = 0}};
  out.step(one);
  out.ended({});
  EXPECT_THAT(paper_.all, HasSubstr("\nsent      replicas 100 B\n"));
}

TEST_F(ConsoleTest, StoppedRunShowsItsLastStep) {
  Console& out = console(Style::plain);
  out.training(Step{}, Step{300});
  out.step(line(1));
  out.step(line(2));
  out.ended({});
  EXPECT_THAT(paper_.all, HasSubstr("step 2/300"));
}

// What a terminal of this width shows after these characters, and where its cursor is: line feeds,
// carriage returns and the sequences that the console uses.
struct Terminal {
  explicit Terminal(std::size_t width) : columns(width) {}

  void write(const std::string& text) {
    for (std::size_t i = 0; i < text.size();) {
      if (text.compare(i, 2, "\x1b[") == 0) {
        const std::size_t end = text.find_first_of("KJAm", i);
        sequence(text[end], text.substr(i + 2, end - i - 2));
        i = end + 1;
        continue;
      }
      const std::size_t bytes = utf8_length(std::string_view(text).substr(i));
      character(text.substr(i, bytes));
      i += bytes;
    }
  }
  void character(const std::string& one) {
    if (one == "\r") {
      column = 0;
    } else if (one == "\n") {
      ++row;
      column = 0;
    } else {
      if (column == columns) {
        ++row;
        column = 0;
      }
      cell(row).resize(std::max(cell(row).size(), column + 1), " ");
      cell(row)[column++] = one;
    }
  }
  void sequence(char kind, const std::string& number) {
    if (kind == 'm') return;
    if (kind == 'A') row -= std::stoul(number);
    if (kind == 'A') return;
    cell(row).resize(std::min(cell(row).size(), column));
    if (kind == 'J') rows.resize(row + 1);
  }
  std::vector<std::string>& cell(std::size_t number) {
    if (rows.size() <= number) rows.resize(number + 1);
    return rows[number];
  }
  std::vector<std::string> lines() {
    std::vector<std::string> all;
    for (const auto& cells : rows) {
      std::string& line = all.emplace_back();
      for (const std::string& one : cells) line += one;
    }
    while (!all.empty() && all.back().empty()) all.pop_back();
    return all;
  }

  std::size_t columns;
  std::vector<std::vector<std::string>> rows;
  std::size_t row = 0;
  std::size_t column = 0;
};

TEST_F(ConsoleTest, LiveBlockStaysBelowTheEventsAndIsReplaced) {
  Console& out = console(Style::live, 80);
  out.training(Step{}, Step{300});
  out.step(line(1));
  now_ += 1s;
  out.step(line(150));
  out.checkpointed(Step{100});
  Terminal terminal(80);
  terminal.write(paper_.all);
  EXPECT_THAT(terminal.lines(),
              testing::ElementsAre(
                  "training 300 steps", "checkpoint at step 100",
                  "█████████░░░░░░░░░░  50 %  step 150/300 · ETA 0:38 · checkpoint at step 100",
                  "loss 0.412 ▁▁ · lr 8.1e-4 · 12.3k tok/s · idle 12 %"));
  EXPECT_EQ(terminal.row, 2U) << "text of any piece replaces the block";
  EXPECT_EQ(terminal.column, 0U);
}

// The pump drops a block that was not written yet where a newer piece follows.
TEST_F(ConsoleTest, ScreenIsTheSameWithAnyBlocksDropped) {
  std::vector<std::pair<std::string, bool>> pieces;
  class Pieces : public base::TextSink {
   public:
    explicit Pieces(std::vector<std::pair<std::string, bool>>& all) : all_(all) {}
    void write(std::string text, bool passing) override { all_.emplace_back(text, passing); }

   private:
    std::vector<std::pair<std::string, bool>>& all_;
  } sink(pieces);
  {
    Console out(sink,
                {Style::live, [] { return std::size_t{60}; }, 1000ms, [this] { return now_; }});
    out.training(Step{}, Step{300});
    for (int step = 1; step <= 40; ++step) {
      now_ += 1s;
      out.step(line(step));
      second(out);
      if (step % 7 == 0)
        out.event("stage 1.0", {"x", std::string(static_cast<std::size_t>(5 * step), 'x')});
    }
  }
  Terminal whole(60);
  for (const auto& [text, passing] : pieces) whole.write(text);
  std::uint32_t random = 7;
  for (int times = 0; times < 50; ++times) {
    Terminal terminal(60);
    for (const auto& [text, passing] : pieces) {
      random = random * 1664525 + 1013904223;
      if (!passing || (random >> 16U) % 2 == 0) terminal.write(text);
    }
    EXPECT_EQ(terminal.lines(), whole.lines());
  }
  EXPECT_THAT(whole.lines(), Not(testing::Contains(HasSubstr("step 40/300")))) << "none is left";
}

TEST_F(ConsoleTest, LiveLinesAreNeverWiderThanTerminal) {
  for (const std::size_t columns : {20U, 40U, 80U, 200U}) {
    paper_.all.clear();
    Console& out = console(Style::live, columns);
    out.training(Step{}, Step{300});
    paper_.all.clear();
    out.step(line(2));
    Terminal terminal(1000);
    terminal.write(paper_.all);
    for (const std::string& one : terminal.lines())
      EXPECT_LT(base::columns_of(one), columns) << one;
    EXPECT_THAT(paper_.all, HasSubstr("loss 0.412"));
  }
}

TEST_F(ConsoleTest, LastStepStaysWhenTheBlockGoes) {
  Console& out = console(Style::live);
  out.training(Step{}, Step{300});
  out.step(line(1));
  out.step(line(3));
  out.ended({});
  Terminal terminal(200);
  terminal.write(paper_.all);
  EXPECT_THAT(terminal.lines(),
              testing::ElementsAre("training 300 steps",
                                   "step 3/300 · loss 0.412 · lr 8.1e-4 · 12.3k tok/s · idle 12 % "
                                   "· ETA 1:14"));
}

TEST_F(ConsoleTest, LiveStyleReportsWaitsWithoutSteps) {
  Console& out = console(Style::live);
  second(out);
  EXPECT_THAT(paper_.all, Not(HasSubstr("waits")));
  second(out);
  EXPECT_THAT(paper_.all, HasSubstr("stage 0.0: forward · stage 1.0 waits 3 s for forward"));
}

TEST_F(ConsoleTest, FirstStepHasAnEstimateByThePlan) {
  Console& out = console(Style::live);
  out.plan("text", R"({"step_seconds":4,"first_epoch_step_seconds":5})");
  out.training(Step{}, Step{300});
  for (int i = 0; i < 3; ++i) second(out);
  EXPECT_THAT(paper_.all, HasSubstr("first step, 0:03 of about 0:05 by the plan: stage 0.0: forw"));
  out.step(line(1));
  now_ += 1s;
  paper_.all.clear();
  out.step(line(2));
  EXPECT_THAT(paper_.all, Not(HasSubstr("first step")));
}

TEST_F(ConsoleTest, ColoursSayWhatALineMeans) {
  const auto text = [this](bool colors) {
    paper_.all.clear();
    Console out(paper_, {Style::live, [] { return std::size_t{80}; }, 1000ms,
                         [this] { return now_; }, colors});
    out.training(Step{}, Step{300});
    out.step(line(1));
    out.checkpoint_failed(Step{2}, "no room");
    out.ended(broken());
    return paper_.all;
  };
  EXPECT_THAT(text(true),
              HasSubstr("\x1b[1;31mstrait: stage 1.0 (host b): killed by signal 9\x1b[0m"));
  EXPECT_THAT(text(true), HasSubstr("\x1b[33mwarning: checkpoint at step 2 failed"));
  EXPECT_THAT(text(true), HasSubstr("\x1b[32m░"));
  EXPECT_THAT(text(false), Not(testing::ContainsRegex("\x1b\\[[0-9;]*m")));
}

TEST_F(ConsoleTest, PlainStyleReportsLongWaitsRarely) {
  Console& out = console(Style::plain);
  out.plan("", R"({"step_seconds":70})");
  out.training(Step{}, Step{300});
  const auto lines_of_a_minute = [&] {
    paper_.all.clear();
    for (int i = 0; i < 65; ++i) second(out);
    return std::ranges::count(paper_.all, '\n');
  };
  EXPECT_EQ(lines_of_a_minute(), 13) << "before the first step every five seconds";
  EXPECT_THAT(paper_.all, HasSubstr("first step, 1:00 of about 1:10 by the plan: stage 0.0: forw"));
  out.step(line(1));
  EXPECT_EQ(lines_of_a_minute(), 2) << "between steps every thirty";
  EXPECT_THAT(paper_.all, HasSubstr("\nstage 0.0: forward · "));
  now_ += 1s;
  out.step(line(300));
  EXPECT_EQ(lines_of_a_minute(), 13);
  EXPECT_THAT(paper_.all, HasSubstr("last checkpoint, 0:05: stage 0.0: forward"));
  out.checkpointed(Step{300});
  lines_of_a_minute();
  EXPECT_THAT(paper_.all, HasSubstr("ending, 0:05: "));
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
            "  a failure that followed:\n"
            "    stage 0.0 (host a): lost stage 1.0\n");
}

TEST_F(ConsoleTest, FailureOfManyProcessesWithALongLogHasElevenLines) {
  Console& out = console(Style::plain);
  out.training(Step{}, Step{300});
  run::StepLine one = line(1);
  one.boundaries = {boundary("forward", 4'000, 500)};
  out.step(one);
  out.step(one);
  paper_.all.clear();
  run::Outcome outcome = broken();
  outcome.log_tail = std::vector<std::string>(20, "a line");
  outcome.followers = std::vector<std::string>(7, "stage 0.0 (host a): lost stage 1.0");
  out.ended(outcome);
  // And closing_lines() adds one.
  EXPECT_EQ(std::ranges::count(paper_.all, '\n'), 11) << paper_.all;
  EXPECT_THAT(paper_.all, HasSubstr("  7 failures followed, the first of them:\n"));
}

TEST_F(ConsoleTest, RemovesControlCharactersFromMessages) {
  Console& out = console(Style::live);
  out.event("stage 1.0", {"x", "\x1b]0;title\x07\r\nfake"});
  EXPECT_EQ(paper_.all, "\rstage 1.0: ]0;titlefake\x1b[K\n\x1b[J");
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
