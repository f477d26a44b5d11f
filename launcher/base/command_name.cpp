#include "launcher/base/command_name.h"

#include <fmt/format.h>

#include <system_error>

#include "launcher/base/errors.h"
#include "launcher/base/own_program.h"
#include "launcher/base/text.h"

namespace strait::base {

std::string command_name(const std::filesystem::path& directory,
                         const std::filesystem::path& program) {
  const std::filesystem::path script = directory / "strait";
  // In a checkout the program is build/PRESET/bin/strait.
  const auto checkout = program.parent_path().parent_path().parent_path().parent_path();
  std::error_code absent;
  const bool same = std::filesystem::is_regular_file(script, absent) &&
                    std::filesystem::equivalent(script, checkout / "strait", absent);
  return same ? "./strait" : "strait";
}

std::string command_name() { return command_name(".", own_program()); }

std::string strait_command(std::string_view verb, const std::filesystem::path& path) {
  return fmt::format("{} {} {}", command_name(), verb, shell_word(path.string()));
}

void refuse_no_run(const std::filesystem::path& folder) {
  throw UserError(
      ExitCode::bad_input,
      fmt::format("{} holds no run (it has no plan.json); list the runs here: {} status",
                  folder.string(), command_name()));
}

}  // namespace strait::base
