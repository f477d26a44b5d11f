#include <unistd.h>

#include <cerrno>
#include <climits>

#include "launcher/base/errors.h"
#include "launcher/base/stop_signals.h"
#include "launcher/cli/strait_main.h"

namespace {

// A library of libtorch ends the process where the current directory was removed.
void check_current_directory() {
  std::array<char, PATH_MAX> path{};
  if (::getcwd(path.data(), path.size()) != nullptr || errno != ENOENT) return;
  constexpr std::string_view kSentence =
      "strait: the current directory was removed; go to one that exists\n";
  [[maybe_unused]] const ssize_t said = ::write(STDERR_FILENO, kSentence.data(), kSentence.size());
  ::_exit(number(strait::base::ExitCode::bad_input));
}

// Libraries take a tenth of a second to initialise before main() is called, and a stop in that time
// must not be silent. The loader calls what is in this section before that: it has no libraries.
void before_libraries(int argc, char** argv, char** environment) {
  strait::base::StopSignals::announce();
  check_current_directory();
  environ = environment;  // the C library sets it later
  strait::bound_thread_waits(argc, argv);
}
[[gnu::used, gnu::section(".preinit_array")]] const auto kBeforeLibraries = &before_libraries;

}  // namespace

int main(int argc, char** argv) { strait::end_program(strait::strait_main(argc, argv, nullptr)); }
