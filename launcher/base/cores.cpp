#include "launcher/base/cores.h"

#include <dlfcn.h>
#include <sched.h>
#include <unistd.h>

#include <ctime>
#include <fstream>
#include <string>

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

}  // namespace

std::int64_t usable_cores() {
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

ProcessorTime processor_time() {
  timespec own{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own);
  return {machine_seconds(),
          static_cast<double>(own.tv_sec) + 1e-9 * static_cast<double>(own.tv_nsec)};
}

}  // namespace strait::base
