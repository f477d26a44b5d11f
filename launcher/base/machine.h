#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace strait::base {

// The cores of this machine that this process may use, which containers and schedulers make fewer
// than there are: by affinity or by a quota of processor time.
std::int64_t usable_cores();

// Processor time in seconds: of this machine since it started, of this process since it began. What
// a hypervisor gives to other machines counts as used. Absent: the kernel does not say.
struct ProcessorTime {
  std::optional<double> machine;
  double process = 0;
};
ProcessorTime processor_time();

// Seconds that the threads of this process have waited for a core while they could compute, since
// they began. Absent: the kernel does not say, or a quota of processor time makes them wait.
std::optional<double> waited_for_cores();

// Bounds in the environment how long the threads of OpenMP spin before they sleep when they wait
// for each other, in programs that are executed after this. By default they spin for milliseconds.
// Where a core is also wanted by others (another program, our own codec and net threads), those
// that compute then wait for those that spin. Where a core is free, a short spin saves a wake-up.
// The runtime reads this when it is loaded. Call before any thread starts. Returns false and
// changes nothing if the environment sets it already.
bool set_thread_waits();

// Memory of this machine, or of what a control group leaves this process of it, in bytes. 0: not
// known here.
struct HostMemory {
  std::int64_t total = 0;
  std::int64_t available = 0;  // for new allocations, without swapping
};
HostMemory host_memory();
// The most that this process has had in memory so far, with all that it shares.
std::int64_t peak_memory();

// The memory that this process has taken for itself since this was made, at most. Pages of files
// are not in it: code, libraries and mapped data are shared by the processes of a machine, and the
// kernel takes them back when memory is short. Of memory that processes share, as replicas of a
// host do to sum gradients, each counts its part. Not thread safe.
class OwnMemory {
 public:
  OwnMemory();
  // Reads the kernel's counters. The kernel keeps a peak of all pages only, so a peak counts the
  // pages of files as of the nearest calls.
  std::int64_t peak();
  // At the last call of peak(): the most that this process has had in memory since it began, pages
  // of files included.
  std::int64_t peak_with_files() const { return all_pages_ - of_others_; }

 private:
  std::int64_t start_;
  std::int64_t peak_;
  std::int64_t shared_ = 0;      // with other processes, at the last call
  std::int64_t of_others_ = 0;   // the part of it that counts in them
  std::int64_t all_pages_ = 0;   // their peak at the last call
  std::int64_t file_pages_ = 0;  // at the last call
};

// Raises this process's limit of open files to what it may be: each connection takes several, and
// ZeroMQ ends the process where it gets none. UserError: the limit is too low for any run.
void raise_open_files();

// A timeout for poll(2), rounded up; 0: the deadline has passed.
int milliseconds_until(std::chrono::steady_clock::time_point deadline);

// Seconds since 1970, by this host's clock. Shown to users and compared across hosts; no deadline
// depends on it.
std::int64_t unix_seconds();
double unix_time();  // with fractions

// A temporary folder, private to this user; the destructor removes it.
class ScratchFolder {
 public:
  // `purpose` is part of its name. UserError (storage_io): it cannot be created.
  explicit ScratchFolder(const std::string& purpose);
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder();

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace strait::base
