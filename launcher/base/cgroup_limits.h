#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace strait::base {

// What the control groups of this process, as containers and Slurm's jobs are, leave it of the
// machine: of its groups and all above them, the least. Absent: no limit is set or known.
struct CgroupLimits {
  std::optional<double> cores;  // of processor time: 1.5 is a core and a half
  std::optional<std::int64_t> memory;
  std::optional<std::int64_t> memory_left;  // of that; pages of files can be dropped, and count
};

// Of version 1 and 2. Read anew with each call, because limits change while processes run.
CgroupLimits cgroup_limits(const std::filesystem::path& memberships = "/proc/self/cgroup",
                           const std::filesystem::path& root = "/sys/fs/cgroup");

}  // namespace strait::base
