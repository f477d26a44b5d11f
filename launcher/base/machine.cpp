#include "launcher/base/machine.h"

#include <dlfcn.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <map>

#include "launcher/base/cgroup_limits.h"
#include "launcher/base/errors.h"

namespace strait::base {
namespace {

// The first line of /proc/stat: "cpu" and, in ticks, user, nice, system, idle, iowait, irq,
// softirq, steal. The times of guests that follow are in user and nice already.
std::optional<double> machine_seconds() {
  std::ifstream in("/proc/stat");
  std::string name;
  double user = 0, nice = 0, system = 0, idle = 0, waiting = 0, irq = 0, soft = 0, steal = 0;
  in >> name >> user >> nice >> system >> idle >> waiting >> irq >> soft >> steal;
  if (!in || name != "cpu") return std::nullopt;
  const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  return (user + nice + system + irq + soft + steal) / ticks;
}

constexpr const char* kStatus = "/proc/self/status";

// The lines "Name:   123 kB" of a file of /proc, in bytes.
std::map<std::string, std::int64_t> sizes_in(const char* path) {
  std::map<std::string, std::int64_t> sizes;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos || !line.ends_with(" kB")) continue;
    const std::size_t digit = line.find_first_of("0123456789", colon);
    std::int64_t kilobytes = 0;  // stays where a process has a name that looks like a size
    std::from_chars(line.data() + std::min(digit, line.size()), line.data() + line.size(),
                    kilobytes);
    sizes[line.substr(0, colon)] = 1024 * kilobytes;
  }
  return sizes;
}

// Of `shared` bytes that this process shares, the part that counts in the others.
std::int64_t part_of_others(std::int64_t shared) {
  const std::map<std::string, std::int64_t> sums = sizes_in("/proc/self/smaps_rollup");
  const auto part = sums.find("Pss_Shmem");  // Linux 5.8
  return part == sums.end() ? 0 : std::max<std::int64_t>(0, shared - part->second);
}

std::int64_t cores_of_this_thread() {
  // OpenMP's runtime, where libtorch has loaded one, may have bound this thread to a single core
  // (OMP_PROC_BIND). It has counted them before.
  if (void* const counts = ::dlsym(RTLD_DEFAULT, "omp_get_num_procs"); counts != nullptr) {
    return reinterpret_cast<int (*)()>(counts)();
  }
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return ::sysconf(_SC_NPROCESSORS_ONLN);
  return CPU_COUNT(&set);
}

}  // namespace

std::int64_t usable_cores() {
  // A part of a core is one more: threads with less than a core each compute more than fewer of
  // them with one.
  const std::int64_t cores = cores_of_this_thread();
  const std::optional<double> quota = cgroup_limits().cores;
  return quota ? std::clamp(static_cast<std::int64_t>(std::ceil(*quota)), std::int64_t{1}, cores)
               : cores;
}

ProcessorTime processor_time() {
  timespec own{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own);
  return {machine_seconds(),
          static_cast<double>(own.tv_sec) + 1e-9 * static_cast<double>(own.tv_nsec)};
}

std::optional<double> waited_for_cores() {
  // It would count the pauses of a quota.
  if (cgroup_limits().cores) return std::nullopt;
  std::optional<double> waited;
  std::error_code gone;  // a thread may end meanwhile
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", gone)) {
    std::ifstream file(thread.path() / "schedstat");
    double computed = 0;
    double waits = 0;  // both in nanoseconds
    if (file >> computed >> waits) waited = waited.value_or(0) + 1e-9 * waits;
  }
  return waited;
}

bool set_thread_waits() {
  // The standard's variable, and those of GNU's and of LLVM's and Intel's runtimes.
  constexpr std::array kKnown{"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"};
  if (std::ranges::any_of(kKnown, [](const char* name) { return std::getenv(name) != nullptr; })) {
    return false;
  }
  // About 0.1 ms: longer than the gap between two operators of a small model, shorter than a
  // scheduler's turn. Measured with 0 to 300,000 spins, idle and loaded (tests/bench/RESULTS.md).
  ::setenv("GOMP_SPINCOUNT", "3000", 1);
  ::setenv("KMP_BLOCKTIME", "1", 1);  // milliseconds, the least above none
  return true;
}

HostMemory host_memory() {
  std::map<std::string, std::int64_t> sizes = sizes_in("/proc/meminfo");
  const CgroupLimits limits = cgroup_limits();
  HostMemory memory{.total = sizes["MemTotal"], .available = sizes["MemAvailable"]};
  memory.total = std::min(memory.total, limits.memory.value_or(memory.total));
  memory.available = std::min(memory.available, limits.memory_left.value_or(memory.available));
  return memory;
}

std::int64_t peak_memory() { return sizes_in(kStatus)["VmHWM"]; }

OwnMemory::OwnMemory() {
  std::map<std::string, std::int64_t> now = sizes_in(kStatus);
  start_ = peak_ = now["RssAnon"] + now["RssShmem"];
  all_pages_ = now["VmHWM"];
  file_pages_ = now["RssFile"];
}

std::int64_t OwnMemory::peak() {
  std::map<std::string, std::int64_t> now = sizes_in(kStatus);
  // For its sums the kernel visits every page of the process, so only where something has changed.
  if (now["RssShmem"] != shared_) {
    shared_ = now["RssShmem"];
    of_others_ = part_of_others(shared_);
  }
  peak_ = std::max(peak_, now["RssAnon"] + shared_ - of_others_);
  const std::int64_t files = now["RssFile"];
  if (now["VmHWM"] > all_pages_)
    peak_ = std::max(peak_, now["VmHWM"] - std::max(files, file_pages_) - of_others_);
  all_pages_ = now["VmHWM"];
  file_pages_ = files;
  return peak_ - start_;
}

void raise_open_files() {
  constexpr rlim_t kLeast = 128;     // of a launcher or stage with few peers
  constexpr rlim_t kMost = 1 << 16;  // programs that we start close that many
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  if (limit.rlim_max < kLeast) {
    throw UserError(ExitCode::bad_input,
                    "a process may have no more than {} files open here (ulimit -Hn), and strait "
                    "needs {}; allow more",
                    limit.rlim_max, kLeast);
  }
  limit.rlim_cur = std::max(limit.rlim_cur, std::min(limit.rlim_max, kMost));
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

int milliseconds_until(std::chrono::steady_clock::time_point deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, INT_MAX));
}

std::int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

double unix_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

ScratchFolder::ScratchFolder(const std::string& purpose) {
  std::string name =
      (std::filesystem::temp_directory_path() / ("strait-" + purpose + "-XXXXXX")).string();
  if (::mkdtemp(name.data()) == nullptr) {
    throw UserError(ExitCode::storage_io, "cannot create a temporary folder " + name);
  }
  path_ = name;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;  // the system removes temporary files eventually
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace strait::base
