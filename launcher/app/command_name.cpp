#include "launcher/app/command_name.h"

#include <system_error>

#include "launcher/base/own_program.h"

namespace strait::app {

std::string command_name(const std::filesystem::path& directory,
                         const std::filesystem::path& program) {
  const std::filesystem::path script = directory / "strait";
  // The program of a checkout is build/PRESET/bin/strait.
  const auto checkout = program.parent_path().parent_path().parent_path().parent_path();
  std::error_code absent;
  const bool same = std::filesystem::is_regular_file(script, absent) &&
                    std::filesystem::equivalent(script, checkout / "strait", absent);
  return same ? "./strait" : "strait";
}

std::string command_name() { return command_name(".", base::own_program()); }

}  // namespace strait::app
