#include "launcher/base/cgroup_limits.h"

#include <gtest/gtest.h>

#include "launcher/base/machine.h"
#include "tests/scratch_directory.h"

namespace strait::base {
namespace {

class CgroupLimitsTest : public testing::Test {
 protected:
  void write(const std::string& file, const std::string& text) const {
    const std::filesystem::path path = folder_ / file;
    std::filesystem::create_directories(path.parent_path());
    ScratchDirectory::write(path, text);
  }
  CgroupLimits read(const std::string& memberships) const {
    write("self", memberships);
    return cgroup_limits(folder_ / "self", folder_ / "cgroup");
  }

  const ScratchDirectory folder_;
};

TEST_F(CgroupLimitsTest, LeastOfAGroupAndThoseAboveCounts) {
  write("cgroup/job/cpu.max", "150000 100000\n");
  write("cgroup/job/memory.max", "8000\n");
  write("cgroup/job/memory.current", "5000\n");
  write("cgroup/job/memory.stat", "anon 4000\nactive_file 100\ninactive_file 600\n");
  write("cgroup/job/step/cpu.max", "max 100000\n");
  write("cgroup/job/step/memory.max", "9000\n");
  write("cgroup/job/step/memory.current", "7000\n");
  const CgroupLimits limits = read("0::/job/step\n");
  EXPECT_EQ(limits.cores, 1.5);
  EXPECT_EQ(limits.memory, 8000);
  EXPECT_EQ(limits.memory_left, 2000);
}

TEST_F(CgroupLimitsTest, VersionOneHasAFolderForEachController) {
  write("cgroup/cpu/pod/cpu.cfs_quota_us", "25000\n");
  write("cgroup/cpu/pod/cpu.cfs_period_us", "100000\n");
  write("cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  write("cgroup/cpu/cpu.cfs_period_us", "100000\n");
  write("cgroup/memory/pod/memory.limit_in_bytes", "9223372036854771712\n");
  write("cgroup/memory/memory.limit_in_bytes", "4000\n");
  write("cgroup/memory/memory.usage_in_bytes", "5000\n");
  const CgroupLimits limits =
      read("9:name=systemd:/pod\n4:memory:/pod\n2:cpu,cpuacct:/pod\n0::/\n");
  EXPECT_EQ(limits.cores, 0.25);
  EXPECT_EQ(limits.memory, 4000);
  EXPECT_EQ(limits.memory_left, 0);
}

// As Docker mounts it for version 1: the path is that of the machine, the mount the own group.
TEST_F(CgroupLimitsTest, MountOfAContainerIsItsGroup) {
  write("cgroup/memory/memory.limit_in_bytes", "4000\n");
  EXPECT_EQ(read("4:memory:/docker/0123\n").memory, 4000);
}

TEST_F(CgroupLimitsTest, WithoutLimitsOrFilesThereIsNone) {
  write("cgroup/cpu.max", "max 100000\n");
  write("cgroup/memory.max", "max\n");
  for (const char* const memberships : {"0::/\n", "0::/gone\n", "", "no line of this kind\n"}) {
    const CgroupLimits limits = read(memberships);
    EXPECT_FALSE(limits.cores || limits.memory || limits.memory_left) << memberships;
  }
}

TEST(CgroupLimits, BoundWhatThisMachineIsTakenFor) {
  const CgroupLimits limits = cgroup_limits();
  EXPECT_GE(usable_cores(), 1);
  const auto cores = static_cast<double>(usable_cores());
  EXPECT_LT(cores, limits.cores.value_or(cores) + 1);
  EXPECT_LE(host_memory().total, limits.memory.value_or(host_memory().total));
}

}  // namespace
}  // namespace strait::base
