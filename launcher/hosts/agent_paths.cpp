#include "launcher/hosts/agent_paths.h"

#include <fmt/format.h>

#include <cstdlib>

#include "launcher/base/errors.h"

namespace strait::hosts {

namespace fs = std::filesystem;

fs::path agent_directory(const std::string& written) {
  const char* home = std::getenv("HOME");
  if (written == "~" || written.starts_with("~/")) {
    if (home == nullptr) {
      throw base::UserError(base::ExitCode::bad_input,
                            fmt::format("the directory {} needs $HOME, which is not set", written));
    }
    return fs::path(home) / fs::path(written.substr(written.size() > 1 ? 2 : 1));
  }
  return fs::absolute(written);
}

fs::path host_run_directory(const fs::path& directory, const std::string& run_name,
                            const net::RunId& run) {
  return directory / "runs" / fmt::format("{}-{}", run_name, run.hex().substr(0, 8));
}

}  // namespace strait::hosts
