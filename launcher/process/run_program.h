#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "launcher/process/backend.h"

namespace strait::process {

// What a program said that ran to its end.
struct ProgramAnswer {
  ExitStatus status;
  std::string out;  // whole lines, of the first MiB
  std::string err;  // its end

  bool succeeded() const { return status.code == 0; }
  // Its complaint in one line: the last that it wrote to stderr, else how it ended.
  std::string complaint() const;
};

// Runs one of the system's programs, found in PATH, and waits for its end. No shell sees the words.
// It gets a session of its own, so that Ctrl-C in our terminal does not reach it, and nothing on
// stdin. UserError: there is no such program, or it has not ended after `limit` (it is killed).
ProgramAnswer run_program(const std::vector<std::string>& argv, std::chrono::seconds limit);

}  // namespace strait::process
