#pragma once

#include <chrono>
#include <filesystem>
#include <ios>
#include <memory>
#include <vector>

#include "framework/net/identity.h"
#include "launcher/base/errors.h"

namespace strait::base {

// How a process ended.
struct ExitStatus {
  std::optional<int> code;    // set if it exited
  std::optional<int> signal;  // set if a signal ended it
  std::string lost;           // why the status is unknown, such as "its host b ..."; else empty

  // "killed by signal 9 (SIGKILL: out of memory, or kill -9)", "ended with code 10 (bad input)"
  std::string sentence() const;
  // The exit code of a run whose root cause this is.
  ExitCode exit_code() const;
};

// What to start. Nothing here is secret but `input`, which is in no argument and no environment.
struct Launch {
  net::ProcessName process;       // for messages, and to name the process on its host
  std::size_t host = 0;           // index into the plan's hosts
  std::vector<std::string> argv;  // argv[0] is the program's path; no shell is involved
  std::string input;          // JSON, written to stdin after its length (4 bytes, little-endian)
  std::filesystem::path log;  // stdout and stderr are appended here; empty: they go to our stderr
};

// A started process. It has a session of its own, so Ctrl-C in the launcher's terminal does not
// reach it. Its stdin stays open as long as this object lives; end of file on it means that the
// launcher has ended. One thread. The destructor kills the process if it runs, and reaps it.
class Process {
 public:
  Process() = default;
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  virtual ~Process() = default;

  virtual int pid() const = 0;
  virtual std::string host() const = 0;

  // Empty while it runs. Does not wait.
  virtual std::optional<ExitStatus> exit_status() = 0;
  virtual std::optional<ExitStatus> wait_until(std::chrono::steady_clock::time_point deadline) = 0;

  virtual void kill() = 0;  // SIGKILL, also to processes that it started

  // Its host has been asked, there, to leave the run. Until it does, the process goes on.
  virtual bool host_leaves() { return false; }
  // The process says that its parent has ended, which would have reported its exit.
  virtual void parent_ended() {}

  // The last lines that it has written into its log, at most `count`, without control characters.
  virtual std::vector<std::string> log_tail(std::size_t count) const = 0;
};

// Starts processes somewhere: here, over ssh, in a Slurm allocation.
class Backend {
 public:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;

  // Returns when the process runs and has its input. UserError: it could not be started.
  virtual std::unique_ptr<Process> start(const Launch& launch) = 0;

  // Starts several, concurrently where possible; returns them in the order of `launches`.
  virtual std::vector<std::unique_ptr<Process>> start_all(const std::vector<Launch>& launches);
};

// Child processes on this machine. They inherit no descriptors and no signal settings. Stateless:
// any thread may start processes, and each Process then belongs to one thread.
class LocalBackend : public Backend {
 public:
  std::unique_ptr<Process> start(const Launch& launch) override;
};

// What one start of a process appends to its log, from the size of the file when this is made.
class StartLog {
 public:
  explicit StartLog(std::filesystem::path file);
  const std::filesystem::path& file() const { return file_; }
  // Its last `count` lines, oldest first, without control characters and cut at 400 bytes each.
  // Reads no more than 64 KiB. Empty if the file does not exist.
  std::vector<std::string> tail(std::size_t count) const;

 private:
  std::filesystem::path file_;
  std::streamoff begin_ = 0;
};

// ": no such file", of the last line of level error in a log; empty: there is none. A process that
// fails before it can report has only logged why.
std::string last_error(const std::vector<std::string>& log);

}  // namespace strait::base
