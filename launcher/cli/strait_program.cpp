#include <unistd.h>

#include <cerrno>
#include <climits>

#include "launcher/cli/strait_command.h"

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

}  // namespace

// Verbs that need libtorch run in strait-torch.
int main(int argc, char** argv) {
  using namespace strait::cli;
  check_current_directory();
  return run_command_line(argc, argv, [argv] {
    strait::recipe::set_part_names(names_without_torch);
    return [argv](const ComputeRequest& request) -> strait::base::ExitCode {
      exec_torch_program(argv, request);
    };
  });
}
