#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/store/file_descriptor.h"
#include "launcher/process/backend.h"

namespace strait::process {

// A program beside this one that we talk with over its stdin and stdout, such as ssh. It has a
// session of its own, so neither Ctrl-C in our terminal nor a question on it reaches it. What it
// says on stderr is kept, at most 64 KiB. One thread.
//
// The destructor closes its stdin, and kills it if it has not ended.
class PipedProcess {
 public:
  using Time = std::chrono::steady_clock::time_point;
  enum class Heard { line, end, nothing_yet };  // end: it closed its stdout

  // argv[0] is looked for in PATH; no shell ever sees it. UserError: there is no such program.
  explicit PipedProcess(const std::vector<std::string>& argv);
  PipedProcess(const PipedProcess&) = delete;
  PipedProcess& operator=(const PipedProcess&) = delete;
  ~PipedProcess();

  // False when it has not taken all by the deadline, or takes no more.
  bool write(std::string_view bytes, Time deadline);
  void close_input();

  // The next line of its stdout, without its end. An unfinished last line counts as one; of a line
  // beyond 1 MiB the beginning is dropped.
  Heard read_line(std::string& line, Time deadline);

  std::optional<ExitStatus> wait_until(Time deadline);

  // All that stderr has said so far.
  const std::string& errors() const { return errors_; }

 private:
  // Waits for the next event on any of its streams and takes what is there. False: the deadline.
  bool serve(bool writing, Time deadline);
  // False: there was nothing. A stream that has ended is closed.
  bool take(store::FileDescriptor& from, std::string& into, std::size_t most);
  bool take_line(std::string& line);
  bool reap();

  int pid_ = -1;
  store::FileDescriptor pidfd_;
  store::FileDescriptor input_;
  store::FileDescriptor output_;
  store::FileDescriptor error_output_;
  std::string said_;  // of stdout, not asked for yet
  std::string errors_;
  std::optional<ExitStatus> status_;
};

}  // namespace strait::process
