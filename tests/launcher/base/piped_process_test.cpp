#include "launcher/base/piped_process.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <csignal>
#include <fstream>

#include "launcher/base/errors.h"
#include "tests/scratch_directory.h"

namespace strait::base {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using ReadResult = PipedProcess::ReadResult;

Clock::time_point soon() { return Clock::now() + 20s; }

TEST(PipedProcess, WritesAndReadsLines) {
  PipedProcess cat({"cat"});
  ASSERT_TRUE(cat.write("one\ntwo", soon()));
  std::string line;
  ASSERT_EQ(cat.read_line(line, soon()), ReadResult::line);
  EXPECT_EQ(line, "one");
  EXPECT_EQ(cat.read_line(line, Clock::now() + 20ms), ReadResult::timeout);
  cat.close_input();
  ASSERT_EQ(cat.read_line(line, soon()), ReadResult::line);
  EXPECT_EQ(line, "two");
  EXPECT_EQ(cat.read_line(line, soon()), ReadResult::end);
  EXPECT_EQ(cat.wait_until(soon())->code, 0);
}

TEST(PipedProcess, TransfersMoreThanPipeCapacity) {
  PipedProcess cat({"cat"});
  std::string all;
  for (int i = 0; i < 40'000; ++i) all += "a line of some length\n";
  ASSERT_TRUE(cat.write(all, soon()));
  cat.close_input();
  std::string line;
  int lines = 0;
  while (cat.read_line(line, soon()) == ReadResult::line) ++lines;
  EXPECT_EQ(lines, 40'000);
}

// A tokenizer's answers are read after more requests were written.
TEST(PipedProcess, KeepsAnswersThatAreReadAfterMoreIsWritten) {
  PipedProcess cat({"cat"});
  std::string all;
  while (all.size() < (8U << 20U)) all += std::to_string(all.size());
  ASSERT_TRUE(cat.write(all, soon()));
  std::string read;
  ASSERT_EQ(cat.read_bytes(read, all.size(), soon()), ReadResult::line);
  EXPECT_TRUE(read == all);
  std::string lines;
  for (int i = 0; i < 200'000; ++i) lines += std::to_string(1'000'000 + i) + "\n";
  ASSERT_TRUE(cat.write(lines, soon()));
  std::string line;
  ASSERT_EQ(cat.read_line(line, soon()), ReadResult::line);
  EXPECT_EQ(line, "1000000");
}

TEST(PipedProcess, WriteTimesOutWhenProgramDoesNotRead) {
  PipedProcess deaf({"sh", "-c", "echo up; exec tail -f /dev/null"});
  std::string line;
  ASSERT_EQ(deaf.read_line(line, soon()), ReadResult::line);
  const std::string much(8 << 20, 'x');
  EXPECT_FALSE(deaf.write(much, Clock::now() + 50ms));
  EXPECT_FALSE(deaf.wait_until(Clock::now() + 10ms));
}

TEST(PipedProcess, ReadsAfterTheDeadlineWhatWasThereBefore) {
  const ScratchDirectory directory;
  const auto fifo = directory / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  PipedProcess early(
      {"sh", "-c",
       "printf '%0100000d\\n' 1; echo > " + fifo.string() + "; exec tail -f /dev/null"});
  std::string line;
  std::ifstream signal(fifo);
  ASSERT_TRUE(std::getline(signal, line)) << "it has written its line";
  const auto past = Clock::now() - 1s;
  ASSERT_EQ(early.read_line(line, past), ReadResult::line);
  EXPECT_EQ(line.size(), 100'000U);
  EXPECT_EQ(early.read_line(line, past), ReadResult::timeout);
}

TEST(PipedProcess, EndlessOutputDoesNotExtendTheDeadline) {
  PipedProcess yes({"yes"});
  std::string line;
  ASSERT_EQ(yes.read_line(line, soon()), ReadResult::line);
  const auto past = Clock::now() - 1s;
  while (yes.read_line(line, past) == ReadResult::line) {
  }
  EXPECT_FALSE(yes.wait_until(past));
}

// The time is linear in the bytes: removed one by one from the front they would take minutes.
TEST(PipedProcess, ReadsShortLinesThatCameWhileItWrote) {
  constexpr int kLines = 1'000'000;
  PipedProcess counting({"sh", "-c", "seq " + std::to_string(kLines) + "; cat >/dev/null"});
  ASSERT_TRUE(counting.write(std::string(1 << 20, 'x'), soon()));
  counting.close_input();
  std::string line;
  int lines = 0;
  while (counting.read_line(line, soon()) == ReadResult::line) {
    ASSERT_EQ(line, std::to_string(++lines));
  }
  EXPECT_EQ(lines, kLines);
}

TEST(PipedProcess, LooksLoseNoLineOfAProgramThatGoesOnWriting) {
  const ScratchDirectory scratch;
  const std::string file = (scratch.path() / "lines").string();
  constexpr int kLines = 60'000;
  {
    std::ofstream out(file);
    for (int i = 0; i < kLines; ++i) out << i << std::string(1000, ' ') << '\n';
  }
  PipedProcess program({"dd", "if=" + file, "bs=16M", "status=none"});
  std::string line;
  int lines = 0;
  for (auto result = ReadResult::timeout; result != ReadResult::end;) {
    result = program.read_line(line, std::chrono::steady_clock::now());
    if (result == ReadResult::line) {
      ASSERT_EQ(line.substr(0, line.find(' ')), std::to_string(lines++));
    }
  }
  EXPECT_EQ(lines, kLines);
}

TEST(PipedProcess, ReportsExitStatusAndStderr) {
  PipedProcess failing({"sh", "-c", "echo it broke >&2; exit 7"});
  EXPECT_EQ(failing.wait_until(soon())->code, 7);
  EXPECT_EQ(failing.errors(), "it broke\n");
  PipedProcess killed({"sh", "-c", "kill -9 $$"});
  EXPECT_EQ(killed.wait_until(soon())->signal, SIGKILL);
  // The reader is gone; that is a result, not a signal for us.
  EXPECT_FALSE(killed.write(std::string(1 << 20, 'x'), soon()));
}

TEST(PipedProcess, DoesNotWaitForOrphanHoldingStdout) {
  PipedProcess leaving({"sh", "-c", "tail -f /dev/null & echo $!"});
  std::string line;
  ASSERT_EQ(leaving.read_line(line, soon()), ReadResult::line);
  EXPECT_EQ(leaving.read_line(line, soon()), ReadResult::end);
  EXPECT_EQ(leaving.wait_until(soon())->code, 0);
  ::kill(std::stoi(line.empty() ? "0" : line), SIGKILL);
}

TEST(PipedProcess, ReportsMissingProgram) {
  EXPECT_THROW(PipedProcess({"no-program-of-this-name"}), UserError);
}

TEST(PipedProcess, DestructorKillsProcessGroup) {
  std::string line;
  {
    PipedProcess group({"sh", "-c", "echo $$; exec tail -f /dev/null"});
    ASSERT_EQ(group.read_line(line, soon()), ReadResult::line);
    EXPECT_EQ(::kill(std::stoi(line), 0), 0);
  }
  EXPECT_NE(::kill(std::stoi(line), 0), 0);
}

}  // namespace
}  // namespace strait::base
