#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "launcher/base/exit_code.h"

namespace strait::app {

struct LogWords {
  std::filesystem::path run;
  std::string process;   // "1.0"; empty: all, in the order of their times
  bool follow = false;   // until the run is over
  std::size_t last = 0;  // begin with so many lines; 0: with all
};

// `strait logs RUN [PROCESS]`: what the processes wrote, wherever they run. UserError: there is no
// such run, or no such process (names those there are).
base::ExitCode show_logs(const LogWords& words);

}  // namespace strait::app
