#pragma once

#include <vector>

#include "framework/net/identity.h"
#include "launcher/base/run_lock.h"

namespace strait::base {

inline constexpr const char* kLocksFolder = "locks";  // in a run's directory

// A process whose agent (or launcher: 0) is that of host `host`, an index into the plan's hosts.
struct LockOwner {
  net::ProcessName process;
  std::uint32_t host = 0;
  std::uint32_t generation = 0;
};

// Keeps the generations of a run apart on every host. In `<run directory>/locks/` there is a file
// for each process of the run there, which the process keeps locked; the kernel unlocks it when the
// process is gone with its memory and open files. So after a launcher was killed, the next one ends
// what is left of the former generation before it starts anything.
//
// A process that is about to start is caught, too: a new generation first writes its number into
// `locks/generation`, and a process first takes its lock and then compares that number with its
// own.
class GenerationLock {
 public:
  // Ends the former process of the same name. UserError fenced: a newer generation has begun here;
  // stalled: the former process does not go away (it waits for a disk, or runs on another host).
  GenerationLock(const std::filesystem::path& run_directory, const LockOwner& self);

  // "process 12 of generation 3 …"; empty: there was none.
  const std::string& ended() const { return ended_; }

 private:
  LockFile file_;
  std::string ended_;
};

// The number in a file that counts generations; 0: there is no such file. UserError (corrupt): it
// holds no number.
std::uint32_t read_generation(const std::filesystem::path& file);

// The newest generation that has begun in a run's directory; 0: none. UserError as above.
std::uint32_t begun_generation(const std::filesystem::path& run_directory);

// Begins a generation on a host: on return no process of an older one runs here, and none that the
// former agent of the same host started in this one; none can start any more. Returns a sentence
// for each process that was ended. UserError as above.
std::vector<std::string> end_former_processes(const std::filesystem::path& run_directory,
                                              std::uint32_t host, std::uint32_t generation);

}  // namespace strait::base
