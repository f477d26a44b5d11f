#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/net/process_name.h"
#include "launcher/base/errors.h"

namespace strait::process {

// How a process ended.
struct ExitStatus {
  std::optional<int> code;    // it left by itself
  std::optional<int> signal;  // it was killed
  std::string lost;           // nobody can tell: why; as "its host b ..."

  // "killed by signal 9 (SIGKILL: by the system for want of memory, or by somebody)", "ended with
  // code 10 (bad input)"
  std::string sentence() const;
  // How a run ends whose first cause this is.
  base::ExitCode exit_code() const;
};

// What to start. Nothing here is secret but `input`, which is in no argument and no environment.
struct Launch {
  net::ProcessName process;       // for sentences, and for those who start it elsewhere
  std::size_t host = 0;           // which of the plan's hosts it belongs to
  std::vector<std::string> argv;  // argv[0] is the program's path; no shell ever sees it
  std::string input;              // JSON; arrives on stdin behind its length, 4 bytes little-endian
  std::filesystem::path log;      // stdout and stderr are appended here
};

// A process that we started. It lives in a session of its own: Ctrl-C in our terminal does not
// reach it. Its stdin stays open as long as this object lives; end of file there tells it that the
// launcher is gone. One thread. The destructor kills it if it still runs, and reaps it.
class Process {
 public:
  Process() = default;
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  virtual ~Process() = default;

  virtual int pid() const = 0;
  virtual std::string host() const = 0;

  // How it ended; nothing while it runs. Does not wait.
  virtual std::optional<ExitStatus> ended() = 0;
  virtual std::optional<ExitStatus> wait_until(std::chrono::steady_clock::time_point deadline) = 0;

  virtual void ask_to_end() = 0;  // SIGTERM
  virtual void kill() = 0;        // SIGKILL, to whatever it started too
  // ask_to_end, then kill after `grace`; it has ended when this returns.
  ExitStatus terminate(std::chrono::milliseconds grace);

  // The last lines of its log, at most `count`, without control characters.
  virtual std::vector<std::string> log_tail(std::size_t count) const = 0;
};

// Starts processes somewhere: here, over ssh, in a Slurm allocation.
class Backend {
 public:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;

  // Returns when the process runs and has its input. UserError says what could not be started
  // where.
  virtual std::unique_ptr<Process> start(const Launch& launch) = 0;

  // Several, in their order; where it can, at the same time.
  virtual std::vector<std::unique_ptr<Process>> start_all(const std::vector<Launch>& launches);
};

}  // namespace strait::process
