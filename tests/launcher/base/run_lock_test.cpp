#include "launcher/base/run_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "launcher/base/errors.h"
#include "launcher/base/run_file_names.h"
#include "tests/framework/store/system_faults.h"
#include "tests/scratch_directory.h"

namespace strait::base {
namespace {

// A process that has taken the lock of this run and does nothing else.
class Holder {
 public:
  explicit Holder(const std::filesystem::path& run) {
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0 || (pid_ = ::fork()) < 0) throw std::runtime_error("no child");
    const char taken = 1;
    if (pid_ == 0) {
      const RunLock lock(run);
      if (::write(ends[1], &taken, 1) != 1) ::_exit(1);
      while (true) ::pause();
    }
    char byte = 0;
    ::close(ends[1]);
    const bool holds = ::read(ends[0], &byte, 1) == 1;
    ::close(ends[0]);
    if (!holds) throw std::runtime_error("the child could not take the lock");
  }
  ~Holder() { end(); }
  void end() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_ = 0;
};

void expect_taken(const std::filesystem::path& run) {
  try {
    const RunLock lock(run);
    FAIL() << "it is held by another process";
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_input);
    EXPECT_THAT(error.what(), testing::HasSubstr("in use by a live run (process "));
  }
}

void expect_one_live_owner() {
  const ScratchDirectory run;
  Holder other(run.path());
  expect_taken(run.path());
  other.end();
  EXPECT_NO_THROW(RunLock(run.path()));
}

TEST(RunLock, IsOfOneLiveProcess) { expect_one_live_owner(); }

TEST(RunLock, IsOfOneLiveProcessOnAFileSystemWithoutLocks) {
  store::with_fault({store::SystemCall::flock, 0, ENOLCK, false}, expect_one_live_owner);
}

TEST(RunLock, IsOfADirectoryWhileItsFileIsThere) {
  const ScratchDirectory scratch;
  std::filesystem::create_directory(scratch / "run");
  const RunLock lock(scratch / "run");
  EXPECT_TRUE(lock.is_of(scratch / "run"));
  // Another number of the file, with the same holder in it.
  std::filesystem::copy_file(scratch / "run" / "lock", scratch / "copy");
  std::filesystem::rename(scratch / "copy", scratch / "run" / "lock");
  EXPECT_TRUE(lock.is_of(scratch / "run"));
  ScratchDirectory::write(scratch / "run" / "lock", "");
  EXPECT_FALSE(lock.is_of(scratch / "run")) << "of a run that has just begun";
  std::filesystem::rename(scratch / "run", scratch / "aside");
  EXPECT_FALSE(lock.is_of(scratch / "run"));
}

}  // namespace
}  // namespace strait::base
