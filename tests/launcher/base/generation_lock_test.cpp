#include "launcher/base/generation_lock.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "launcher/base/errors.h"
#include "tests/child_process.h"
#include "tests/scratch_directory.h"

namespace strait::base {
namespace {

// A process of a run that holds its lock until it is killed.
class Member : public ChildProcess {
 public:
  Member(const std::filesystem::path& run, const LockOwner& self)
      : ChildProcess([&](int ready) { hold(run, self, ready); }) {}

  ExitCode code() const { return static_cast<ExitCode>(reported()); }  // done: it holds the lock
  void stop() const { ::kill(pid(), SIGSTOP); }
  bool gone() const {
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(pid()), &info, WEXITED | WNOHANG | WNOWAIT);
    return info.si_pid == pid();
  }

 private:
  static void hold(const std::filesystem::path& run, const LockOwner& self, int ready) {
    try {
      const GenerationLock lock(run, self);
      report_ready(ready, number(ExitCode::done));
      ::pause();
    } catch (const UserError& error) {
      report_ready(ready, number(error.code()));
    }
  }
};

LockOwner stage(std::uint32_t number, std::uint32_t generation, std::uint32_t host = 0) {
  return {{number, 0}, host, generation};
}
LockOwner agent(std::uint32_t host, std::uint32_t generation) {
  return {net::ProcessName::host_agent(host), host, generation};
}

class GenerationLockTest : public testing::Test {
 protected:
  ExitCode begin(std::uint32_t generation, std::uint32_t host = 0) {
    try {
      ended_ = end_former_processes(run_, host, generation);
      return ExitCode::done;
    } catch (const UserError& error) {
      refusal_ = error.what();
      return error.code();
    }
  }

  ScratchDirectory scratch_;
  std::filesystem::path run_ = scratch_ / "run";
  std::vector<std::string> ended_;
  std::string refusal_;
};

TEST_F(GenerationLockTest, EndsAllOfFormerGenerationStoppedOnesToo) {
  ASSERT_EQ(begin(1), ExitCode::done);
  EXPECT_TRUE(ended_.empty());
  const Member first(run_, agent(0, 1));
  const Member second(run_, stage(0, 1));
  const Member third(run_, stage(7, 1));  // of a cut that the next generation does not have
  third.stop();
  ASSERT_EQ(begin(2), ExitCode::done);
  EXPECT_TRUE(first.gone() && second.gone() && third.gone());
  ASSERT_EQ(ended_.size(), 3U);
  EXPECT_NE(ended_[0].find(std::to_string(first.pid())), std::string::npos) << "agents first";
}

TEST_F(GenerationLockTest, FencesOldProcessThatStartsLate) {
  ASSERT_EQ(begin(2), ExitCode::done);
  EXPECT_EQ(Member(run_, stage(0, 1)).code(), ExitCode::fenced);
  EXPECT_EQ(Member(run_, stage(0, 2)).code(), ExitCode::done);
  EXPECT_EQ(begin(1), ExitCode::fenced);
  EXPECT_NE(refusal_.find("generation 2 has begun"), std::string::npos) << refusal_;
}

TEST_F(GenerationLockTest, NewerProcessOfANameEndsOlderAndNeverTheOtherWay) {
  const Member older(run_, stage(0, 3));
  const Member newer(run_, stage(0, 4));
  EXPECT_EQ(newer.code(), ExitCode::done);
  EXPECT_TRUE(older.gone());
  EXPECT_EQ(Member(run_, stage(0, 3)).code(), ExitCode::fenced);
  EXPECT_FALSE(newer.gone());
}

TEST_F(GenerationLockTest, AgentThatComesBackEndsItsOwnStagesOnly) {
  ASSERT_EQ(begin(5), ExitCode::done);
  const Member own(run_, stage(0, 5, 0));
  const Member other(run_, stage(1, 5, 1));  // of another host entry with the same directory
  ASSERT_EQ(begin(5), ExitCode::done);
  EXPECT_TRUE(own.gone());
  EXPECT_FALSE(other.gone());
}

TEST_F(GenerationLockTest, DeadHolderAndGarbageAreNoHolders) {
  { const Member dead(run_, stage(0, 1)); }
  std::ofstream(run_ / "locks" / "1.0.lock") << "{\"pid\":";
  ASSERT_EQ(begin(2), ExitCode::done);
  EXPECT_TRUE(ended_.empty());
  EXPECT_EQ(Member(run_, stage(0, 2)).code(), ExitCode::done);
  EXPECT_EQ(Member(run_, stage(1, 2)).code(), ExitCode::done);
}

TEST_F(GenerationLockTest, RemovesTheNumberThatAKilledProcessHasNotFinished) {
  const std::filesystem::path half = run_ / "locks" / "generation.tmp-98-1626890a";
  ASSERT_EQ(begin(1), ExitCode::done);
  std::ofstream(half) << "2";
  ASSERT_EQ(begin(2), ExitCode::done);
  EXPECT_FALSE(std::filesystem::exists(half));
}

TEST_F(GenerationLockTest, DamagedNumberIsNotTakenForNone) {
  ASSERT_EQ(begin(2), ExitCode::done);
  std::ofstream(run_ / "locks" / "generation") << "";
  EXPECT_EQ(begin(1), ExitCode::corrupt);
  EXPECT_NE(refusal_.find("locks/generation does not hold a number"), std::string::npos)
      << refusal_;
  EXPECT_THROW(GenerationLock(run_, stage(0, 1)), UserError);
}

// Where the file system has no locks, only the record of the holder counts: this process's twin in
// the file is recognised by pid and start time, another one with its pid is not.
TEST_F(GenerationLockTest, RecordAloneCountsForTheSameProcessOnly) {
  const Member holder(run_, stage(0, 1));
  const std::filesystem::path file = run_ / "locks" / "0.0.lock";
  const std::string record = [&] {
    std::ifstream in(file);
    return std::string(std::istreambuf_iterator<char>(in), {});
  }();
  std::filesystem::remove(file);  // the lock is gone with it
  std::ofstream(file) << record;
  ASSERT_EQ(begin(2), ExitCode::done);
  EXPECT_TRUE(holder.gone());

  const Member bystander(run_, stage(1, 2));
  std::string wrong = record;
  const std::string former = "\"pid\":" + std::to_string(holder.pid());
  wrong.replace(wrong.find(former), former.size(), "\"pid\":" + std::to_string(bystander.pid()));
  std::ofstream(file, std::ios::trunc) << wrong;  // its start time is another process's
  ASSERT_EQ(begin(2, 9), ExitCode::done);
  EXPECT_FALSE(bystander.gone());
}

// Agents of several hosts that share a directory start at the same moment: each looks at the locks
// of the others while they are being taken and their records are those of the generation before.
TEST_F(GenerationLockTest, HostsThatShareADirectoryStartTogether) {
  constexpr std::uint32_t kHosts = 6;
  for (std::uint32_t generation = 1; generation <= 30; ++generation) {
    std::vector<int> children;
    for (std::uint32_t host = 0; host < kHosts; ++host) {
      children.push_back(::fork());
      if (children.back() != 0) continue;
      try {
        end_former_processes(run_, host, generation);
        const GenerationLock lock(run_, agent(host, generation));
        end_former_processes(run_, host + kHosts, generation);  // a late look at all others
        ::_exit(0);
      } catch (const UserError&) {
        ::_exit(1);
      }
    }
    for (const int child : children) {
      int status = 0;
      ::waitpid(child, &status, 0);
      ASSERT_TRUE(WIFEXITED(status)) << "one was killed in generation " << generation;
      ASSERT_EQ(WEXITSTATUS(status), 0);
    }
  }
}

TEST_F(GenerationLockTest, OwnProcessIsNeverEnded) {
  const GenerationLock own(run_, stage(0, 1));
  EXPECT_EQ(begin(2), ExitCode::done);
  EXPECT_TRUE(ended_.empty());
}

}  // namespace
}  // namespace strait::base
