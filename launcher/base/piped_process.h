#pragma once

#include "framework/file_descriptor.h"
#include "launcher/base/backend.h"

namespace strait::base {

// The same file under a number above 2: a child's descriptors 0 to 2 are replaced, so those that it
// copies from must have other numbers. One that is not open stays so; not open, too: errno says
// why.
FileDescriptor above_standard_streams(FileDescriptor low);

// Both ends of a stream between this process and a child, above the standard streams. Not a pipe:
// MSG_NOSIGNAL avoids SIGPIPE when the reader has died. UserError: `program` cannot be started.
std::pair<FileDescriptor, FileDescriptor> stream_pair(const std::string& program);

// Starts argv[0], searched in PATH where it has no slash, with these descriptors as its stdin,
// stdout and stderr and no others, in a session of its own and with no signal ignored or blocked.
// Returns 0 when the program runs, or an errno.
int spawn_child(int& pid, std::vector<std::string> argv, int input, int output, int errors);

// A child process with stdin, stdout and stderr connected to this one, such as ssh. It has a
// session of its own: Ctrl-C in this terminal does not reach it, and it cannot prompt there. The
// last 64 KiB of its stderr are kept. One thread.
//
// The destructor closes its stdin, and kills it if it has not ended.
class PipedProcess {
 public:
  using Time = std::chrono::steady_clock::time_point;
  enum class ReadResult { line, end, timeout };  // end: stdout is closed

  // argv[0] is searched in PATH; no shell is involved. UserError: there is no such program.
  explicit PipedProcess(const std::vector<std::string>& argv);
  PipedProcess(const PipedProcess&) = delete;
  PipedProcess& operator=(const PipedProcess&) = delete;
  ~PipedProcess();

  // False if it has not read everything by the deadline, or has closed its stdin. What it writes to
  // stdout meanwhile is kept; beyond 64 MiB it has to wait until that is read.
  bool write(std::string_view bytes, Time deadline);
  void close_input();

  // The next line of stdout, without the newline. An unfinished last line counts as a line. Only
  // the last 1 MiB of a longer line is kept.
  ReadResult read_line(std::string& line, Time deadline);

  // Exactly `size` bytes of stdout, appended; not to be mixed with read_line(). line: all are
  // there.
  ReadResult read_bytes(std::string& into, std::size_t size, Time deadline);

  // Of stdout that is not read by then, the last 1 MiB is kept.
  std::optional<ExitStatus> wait_until(Time deadline);

  // What it has written to stderr so far.
  const std::string& errors() const { return errors_; }

 private:
  // Waits for an event on any of the streams and reads what is available. False at the deadline; to
  // a caller that comes late only after a look at what is there, one for each deadline.
  bool poll_streams(bool writing, Time deadline);
  // False: nothing was available. Closes a stream that has ended.
  bool receive(FileDescriptor& from, std::string& into, std::size_t most);
  bool receive_output(std::size_t most);
  bool next_line(std::string& line);
  bool reap();

  int pid_ = -1;
  FileDescriptor pidfd_;
  FileDescriptor input_;
  FileDescriptor output_;
  FileDescriptor error_output_;
  std::string unread_;  // of stdout
  // Bytes of unread_ that a caller has got. Removed at the next receive, not line by line: what has
  // come while a caller wrote may be 64 MiB.
  std::size_t returned_ = 0;
  std::string errors_;
  std::optional<ExitStatus> status_;
  Time looked_{};  // the last deadline after which the streams were looked at
};

// Output of a program that has ended.
struct ProgramResult {
  ExitStatus status;
  std::string out;  // whole lines of the first MiB
  std::string err;  // the last 64 KiB

  bool succeeded() const { return status.code == 0; }
  // The last line of stderr, or how the program ended if stderr is empty.
  std::string error_line() const;
};

// Runs a program of the system, searched in PATH, and waits for its end. No shell is involved. The
// program has a session of its own, so Ctrl-C in this terminal does not reach it, and an empty
// stdin. UserError: there is no such program, or it was killed because it ran longer than `limit`.
ProgramResult run_program(const std::vector<std::string>& argv, std::chrono::seconds limit);

}  // namespace strait::base
