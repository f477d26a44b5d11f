#include "launcher/base/backend.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <sstream>

#include "launcher/base/errors.h"
#include "tests/scratch_directory.h"

namespace strait::base {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

class LocalBackendTest : public testing::Test {
 protected:
  std::unique_ptr<Process> shell(const std::string& script, const std::string& input = "{}") {
    return backend_.start({{1, 0}, 0, {"/bin/sh", "-c", script}, input, log_});
  }
  std::string log() const { return ScratchDirectory::read(log_); }
  // What a process writes is waited for with a deadline, not for a time.
  bool log_says(const std::string& text) const {
    const auto deadline = Clock::now() + 20s;
    while (Clock::now() < deadline) {
      if (log().find(text) != std::string::npos) return true;
      ::poll(nullptr, 0, 5);
    }
    return false;
  }

  ScratchDirectory scratch_;
  std::filesystem::path log_ = scratch_ / "1.0.log";
  LocalBackend backend_;
};

bool exists(int pid) { return ::kill(pid, 0) == 0; }

// Gone, or dead and waiting for its adopter to reap it; a kill takes a moment to arrive.
bool dies(int pid) {
  const auto deadline = Clock::now() + 20s;
  while (Clock::now() < deadline) {
    std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
    std::string line;
    if (!std::getline(stat, line) || line.find(") Z") != std::string::npos) return true;
    ::poll(nullptr, 0, 5);
  }
  return false;
}

TEST_F(LocalBackendTest, ReportsExitCodeWithMeaning) {
  const auto process = shell("exit 10");
  const auto status = process->wait_until(Clock::now() + 20s);
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(status->code, 10);
  EXPECT_EQ(status->sentence(), "ended with code 10 (bad input)");
  EXPECT_EQ(status->exit_code(), ExitCode::bad_input);
  EXPECT_EQ(process->exit_status()->code, 10);
}

TEST_F(LocalBackendTest, UnknownExitCodeIsInternalError) {
  const auto status = shell("exit 77")->wait_until(Clock::now() + 20s);
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(status->sentence(), "ended with code 77");
  EXPECT_EQ(status->exit_code(), ExitCode::internal);
}

TEST_F(LocalBackendTest, ReportsSignal) {
  const auto killed = shell("kill -9 $$")->wait_until(Clock::now() + 20s);
  ASSERT_TRUE(killed.has_value());
  EXPECT_EQ(killed->signal, SIGKILL);
  EXPECT_THAT(killed->sentence(), HasSubstr("killed by signal 9 (SIGKILL"));
  EXPECT_EQ(killed->exit_code(), ExitCode::peer_lost);
  const auto broken = shell("kill -SEGV $$")->wait_until(Clock::now() + 20s);
  ASSERT_TRUE(broken.has_value());
  EXPECT_EQ(broken->exit_code(), ExitCode::internal);
  const auto truncated = shell("kill -BUS $$")->wait_until(Clock::now() + 20s);
  ASSERT_TRUE(truncated.has_value());
  EXPECT_EQ(truncated->exit_code(), ExitCode::storage_io);
}

TEST_F(LocalBackendTest, WritesInputAfterLengthAndKeepsStdinOpen) {
  const std::string input(300'000, 'x');  // more than a pipe holds
  const auto process = shell("head -c 300004 | od -An -tu1 -N4; echo read; cat; echo gone", input);
  ASSERT_TRUE(log_says("read"));
  std::istringstream numbers(log());
  std::array<std::uint32_t, 4> bytes{};
  for (std::uint32_t& byte : bytes) numbers >> byte;
  EXPECT_EQ(bytes[0] + (bytes[1] << 8U) + (bytes[2] << 16U) + (bytes[3] << 24U), input.size());
  EXPECT_FALSE(process->exit_status().has_value());  // cat still waits: no end of file
}

TEST_F(LocalBackendTest, ClosesStdinWhenDestroyed) {
  // A launcher of its own, in a child: it starts a stage and dies without a word.
  const pid_t launcher = ::fork();
  ASSERT_GE(launcher, 0);
  if (launcher == 0) {
    const auto stage =
        shell("echo $$ > " + (scratch_ / "pid").string() + "; cat >/dev/null; echo alone");
    while (ScratchDirectory::read(scratch_ / "pid").find('\n') == std::string::npos) {
      ::poll(nullptr, 0, 5);
    }
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(launcher, &status, 0), launcher);
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
  EXPECT_TRUE(log_says("alone"));
}

TEST_F(LocalBackendTest, StartsOwnSessionWithDefaultSignals) {
  ::signal(SIGHUP, SIG_IGN);  // as the launcher does: it must not be inherited
  const auto process =
      shell("cut -d' ' -f6 /proc/$$/stat; grep SigIgn /proc/$$/status; ls /proc/$$/fd");
  ::signal(SIGHUP, SIG_DFL);
  ASSERT_TRUE(process->wait_until(Clock::now() + 20s).has_value());
  std::istringstream words(log());
  int session = 0;
  std::string label;
  std::string ignored;
  words >> session >> label >> ignored;
  EXPECT_EQ(session, process->pid());
  EXPECT_EQ(std::stoull(ignored, nullptr, 16) & (1U << (SIGHUP - 1)), 0U);
}

TEST_F(LocalBackendTest, InheritsNoDescriptors) {
  const int open_one = ::open("/dev/null", 0);  // on purpose without close-on-exec
  ASSERT_GE(open_one, 0);
  const auto process = shell("for f in /proc/$$/fd/*; do readlink $f; done");
  ASSERT_TRUE(process->wait_until(Clock::now() + 20s).has_value());
  ::close(open_one);
  EXPECT_THAT(log(), testing::Not(HasSubstr("/dev/null")));
}

TEST_F(LocalBackendTest, KillsProcessThatIgnoresSignals) {
  const auto process = shell("trap '' TERM; echo ready; while :; do read x || sleep 0.05; done");
  ASSERT_TRUE(log_says("ready"));
  process->kill();
  const auto status = process->wait_until(Clock::now() + 20s);
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(status->signal, SIGKILL);
  EXPECT_FALSE(exists(process->pid()));
}

TEST_F(LocalBackendTest, KillsStoppedProcess) {
  const auto process = shell("kill -STOP $$");
  process->kill();
  const auto status = process->wait_until(Clock::now() + 20s);
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(status->signal, SIGKILL);
}

TEST_F(LocalBackendTest, DestructorKillsGrandchildren) {
  int grandchild = 0;
  int pid = 0;
  {
    const auto process = shell("sleep 1000 & echo pid $!; wait");
    ASSERT_TRUE(log_says("pid "));
    ASSERT_TRUE(log_says("\n"));
    std::istringstream words(log());
    std::string label;
    words >> label >> grandchild;
    pid = process->pid();
    ASSERT_TRUE(exists(grandchild));
  }
  EXPECT_FALSE(exists(pid));
  EXPECT_TRUE(dies(grandchild));
}

TEST_F(LocalBackendTest, KillsProcessGroupOfEndedProcess) {
  const auto process = shell("sleep 1000 & echo pid $!");
  ASSERT_TRUE(process->wait_until(Clock::now() + 20s).has_value());
  std::istringstream words(log());
  std::string label;
  int grandchild = 0;
  words >> label >> grandchild;
  EXPECT_TRUE(dies(grandchild));
}

TEST_F(LocalBackendTest, PassesArgumentsWithoutShell) {
  const std::string hostile = "a b\"c' $(touch " + (scratch_ / "trap").string() + ")\n;`x`";
  const auto process = backend_.start({{1, 0}, 0, {"/usr/bin/printf", "%s", hostile}, "{}", log_});
  ASSERT_TRUE(process->wait_until(Clock::now() + 20s).has_value());
  EXPECT_EQ(log(), hostile);
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "trap"));
}

TEST_F(LocalBackendTest, ReportsMissingProgram) {
  try {
    backend_.start({{1, 0}, 0, {"/nowhere/strait-stage"}, "{}", log_});
    FAIL() << "started";
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(),
                 "cannot start stage 1.0: running /nowhere/strait-stage failed: No such file or "
                 "directory");
  }
  try {
    backend_.start({{1, 0}, 0, {"/bin/true"}, "{}", scratch_ / "no" / "log"});
    FAIL() << "started";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("/no/log failed: No such file"));
  }
}

TEST_F(LocalBackendTest, LogTailIsOfThisStart) {
  ASSERT_TRUE(shell("echo of the first start")->wait_until(Clock::now() + 20s).has_value());
  const auto silent = shell("kill -9 $$");
  ASSERT_TRUE(silent->wait_until(Clock::now() + 20s).has_value());
  EXPECT_THAT(silent->log_tail(20), testing::IsEmpty());
  const auto second = shell("echo of the third start");
  ASSERT_TRUE(second->wait_until(Clock::now() + 20s).has_value());
  EXPECT_THAT(second->log_tail(20), ElementsAre("of the third start"));
}

TEST(StartLog, ReturnsLastLinesWithoutControlCharacters) {
  const ScratchDirectory scratch;
  const StartLog log(scratch / "log");
  std::string text;
  for (int i = 0; i < 30'000; ++i) text += "line " + std::to_string(i) + "\n";
  text += "\x1b[31mred\x07\n\nlast, without an end";
  ScratchDirectory::write(scratch / "log", text);
  EXPECT_THAT(log.tail(3), ElementsAre("line 29999", "[31mred", "last, without an end"));
  EXPECT_EQ(log.tail(20).size(), 20U);
  EXPECT_TRUE(StartLog(scratch / "absent").tail(20).empty());
}

}  // namespace
}  // namespace strait::base
