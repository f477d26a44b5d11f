#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "framework/store/atomic_file.h"
#include "framework/store/file_progress.h"
#include "launcher/run/watchdog.h"
#include "tests/framework/store/system_faults.h"
#include "tests/scratch_directory.h"

namespace strait::run {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

const net::ProcessName kSaver{0, 0};
const net::ProcessName kWaiting{1, 0};
constexpr int kPieces = 20;
constexpr int kLimit = 60;  // seconds, of WatchdogLimits::progress

// A stage that saves with the product's writer, on a disk whose calls take seconds of a manual
// clock, and the watchdog with its reports. `seconds` of the n-th call.
class SlowDisk {
 public:
  explicit SlowDisk(std::function<int(int call)> seconds) : seconds_(std::move(seconds)) {
    dog_.restart(now_);
    report();
    ++actions_;
    report();
  }

  void save(const std::filesystem::path& path) {
    const std::vector<std::byte> piece(512);
    store::with_slow_calls([this] { pass(seconds_(calls_++)); },
                           [&] {
                             store::AtomicFile file(path);
                             for (int i = 0; i < kPieces; ++i) file.write(piece);
                             file.commit();
                           });
  }
  int calls() const { return calls_; }
  // The first diagnosis, and how many seconds after the call began.
  const std::optional<StallDiagnosis>& stall() const { return stall_; }
  double after() const { return after_; }

 private:
  void pass(int seconds) {
    for (int half = 1; half <= 2 * seconds && !stall_; ++half) {
      now_ += 500ms;
      if (half % 2 == 0) report();
      stall_ = dog_.judge(now_, 1);
      after_ = 0.5 * half;
    }
  }
  // As StageReporter: bytes of files are progress.
  void report() {
    if (std::exchange(bytes_, store::file_progress()) != bytes_) ++actions_;
    Progress progress;
    progress.phase = "checkpoint";
    progress.finished_actions = actions_;
    dog_.progress(kSaver, progress, now_);
    // It has moved once, and waits since.
    progress.finished_actions = std::min<std::uint64_t>(actions_, 1);
    progress.waits_on = kSaver;
    dog_.progress(kWaiting, progress, now_);
  }

  std::function<int(int)> seconds_;
  Watchdog::Time now_{std::chrono::hours(100)};
  Watchdog dog_{{kSaver, kWaiting}, {}, now_};
  int calls_ = 0;
  std::uint64_t actions_ = 0;
  std::uint64_t bytes_ = store::file_progress();
  std::optional<StallDiagnosis> stall_;
  double after_ = 0;
};

TEST(SlowDisk, IsNoStallWhileCallsEnd) {
  const ScratchDirectory scratch;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 chance(seed);
    std::uniform_int_distribution<int> seconds(1, kLimit - 1);
    SlowDisk disk([&](int) { return seconds(chance); });
    disk.save(scratch / "shard");
    // Writes, fsync, rename, fsync of the folder.
    EXPECT_EQ(disk.calls(), kPieces + 3);
    EXPECT_FALSE(disk.stall().has_value()) << disk.stall()->sentence;
  }
}

TEST(SlowDisk, IsAStallWhereACallDoesNotEnd) {
  const ScratchDirectory scratch;
  std::mt19937_64 chance(1);
  std::uniform_int_distribution<int> longer(kLimit + 4, 300);
  for (int stuck = 0; stuck < kPieces + 3; ++stuck) {
    SCOPED_TRACE(testing::Message() << "call " << stuck);
    const int seconds = longer(chance);
    SlowDisk disk([&](int call) { return call == stuck ? seconds : 1; });
    disk.save(scratch / "shard");
    ASSERT_TRUE(disk.stall().has_value());
    EXPECT_EQ(disk.stall()->process, kSaver);
    EXPECT_THAT(disk.stall()->sentence, HasSubstr("it is in checkpoint"));
    EXPECT_GE(disk.after(), kLimit - 1.5);
    EXPECT_LE(disk.after(), kLimit + 2);
  }
}

}  // namespace
}  // namespace strait::run
