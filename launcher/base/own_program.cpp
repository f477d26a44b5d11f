#include "launcher/base/own_program.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "launcher/base/errors.h"

namespace strait::base {

namespace fs = std::filesystem;

fs::path own_program() { return fs::read_symlink("/proc/self/exe"); }

fs::path shared_folder(const fs::path& program) {
  std::error_code none;  // folders above the program may be anybody's
  for (fs::path at = program.parent_path(); at.has_relative_path(); at = at.parent_path()) {
    for (const fs::path& folder : {at, at / "share" / "strait"}) {
      if (fs::exists(folder / "recipes" / "quickstart.toml", none)) return folder;
    }
  }
  return {};
}

namespace fs = std::filesystem;

fs::path file_of(const PythonScript& script) {
  fs::path file = own_program().parent_path() / script.file;
  if (fs::exists(file)) return file;
  throw UserError(ExitCode::bad_input, "there is no {}, which {}; install strait as a whole",
                  file.string(), script.purpose);
}

std::string python_for(const PythonScript& script) {
  if (const char* chosen = std::getenv("STRAIT_PYTHON"); chosen != nullptr && *chosen != '\0') {
    const fs::path program = chosen;
    if (program.has_parent_path() && !fs::exists(program)) {
      throw UserError(ExitCode::bad_input,
                      "STRAIT_PYTHON is {}, and there is no such program; set it to a "
                      "Python with {}, or unset it",
                      chosen, script.packages);
    }
    return chosen;
  }
  fs::path folder = own_program().parent_path();
  for (int i = 0; i < 4; ++i, folder = folder.parent_path()) {
    const fs::path found = folder / ".venv" / "bin" / "python";
    std::error_code error;
    const bool there = fs::exists(found, error);
    const bool may_run = there && ::access(found.c_str(), X_OK) == 0;
    if (may_run) return found.string();
    if (!there && error != std::errc::permission_denied) continue;
    throw UserError(ExitCode::bad_input,
                    "this user may not run {}, the Python that strait was set up with; "
                    "set STRAIT_PYTHON to another one with {}",
                    found.string(), script.packages);
  }
  return "python3";
}

std::vector<std::string> start_of(const PythonScript& script) {
  return {python_for(script), "-E", "-B", file_of(script).string()};
}

void replace_process(std::vector<std::string> words, const PythonScript& script) {
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  throw UserError(ExitCode::bad_input, "cannot run {}: {}; set STRAIT_PYTHON to a Python with {}",
                  words[0], std::strerror(errno), script.packages);
}

}  // namespace strait::base
