#include "launcher/base/cgroup_limits.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <system_error>

namespace strait::base {
namespace {

namespace fs = std::filesystem;

// The names that a version has for the same facts.
struct MemoryFiles {
  const char* limit;
  const char* used;
  const char* dropped_first;  // in memory.stat: pages of files, unused for long
};
constexpr MemoryFiles kMemory1{"memory.limit_in_bytes", "memory.usage_in_bytes",
                               "total_inactive_file"};
constexpr MemoryFiles kMemory2{"memory.max", "memory.current", "inactive_file"};
// Version 1 says "no limit" by a number of this size.
constexpr double kNoLimit = 1e18;

// The number after `name` in a file; without a name, its first one. "max" is none.
std::optional<double> number_in(const fs::path& file, const std::string& name = "") {
  std::ifstream in(file);
  std::string word;
  while (!name.empty() && word != name && in >> word) {
  }
  double value = 0;
  return in >> value ? std::optional(value) : std::nullopt;
}

template <class T>
void take_less(std::optional<T>& least, T other) {
  least = std::min(least.value_or(other), other);
}

void take_cores(CgroupLimits& limits, std::optional<double> quota, std::optional<double> period) {
  if (quota && period && *quota > 0 && *period > 0) take_less(limits.cores, *quota / *period);
}

void take_memory(CgroupLimits& limits, const fs::path& group, const MemoryFiles& files) {
  const std::optional<double> limit = number_in(group / files.limit);
  if (!limit || *limit >= kNoLimit) return;
  const auto bytes = static_cast<std::int64_t>(*limit);
  take_less(limits.memory, bytes);
  const double used = number_in(group / files.used).value_or(0) -
                      number_in(group / "memory.stat", files.dropped_first).value_or(0);
  take_less(limits.memory_left,
            std::clamp<std::int64_t>(bytes - static_cast<std::int64_t>(used), 0, bytes));
}

void take_group(CgroupLimits& limits, const fs::path& group, bool second) {
  if (second) {
    // "150000 100000": quota and period, or "max 100000".
    std::ifstream both(group / "cpu.max");
    double quota = 0;
    double period = 0;
    if (both >> quota >> period) take_cores(limits, quota, period);
  } else {
    take_cores(limits, number_in(group / "cpu.cfs_quota_us"),
               number_in(group / "cpu.cfs_period_us"));
  }
  take_memory(limits, group, second ? kMemory2 : kMemory1);
}

// The groups from `path` below `mount` up to the mount itself. Inside a container, the path may be
// that of the machine, and the mount the container's own group.
void take_groups(CgroupLimits& limits, const fs::path& mount, const fs::path& path, bool second) {
  fs::path group = path.relative_path();
  std::error_code unknown;
  if (!fs::is_directory(mount / group, unknown)) group.clear();
  for (; !group.empty(); group = group.parent_path()) take_group(limits, mount / group, second);
  take_group(limits, mount, second);
}

}  // namespace

CgroupLimits cgroup_limits(const fs::path& memberships, const fs::path& root) {
  CgroupLimits limits;
  std::ifstream file(memberships);
  // "4:memory:/user.slice" in version 1, "0::/user.slice" in version 2.
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const fs::path path = line.substr(second + 1);
    if (controllers == ",,") take_groups(limits, root, path, true);
    for (const char* const controller : {"cpu", "memory"}) {
      if (controllers.find("," + std::string(controller) + ",") == std::string::npos) continue;
      take_groups(limits, root / controller, path, false);
    }
  }
  return limits;
}

}  // namespace strait::base
