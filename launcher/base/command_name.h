#pragma once

#include <filesystem>
#include <string>
#include <string_view>

// Commands that the user can copy.
namespace strait::base {

// How such a command starts: "./strait" if `directory` is the checkout that `program` was built in,
// because only the script is there; otherwise "strait", which is in the PATH.
std::string command_name(const std::filesystem::path& directory,
                         const std::filesystem::path& program);

// In the current directory, for this program.
std::string command_name();

// "strait status runs/a", with the path as one shell word. `verb` may have flags.
std::string strait_command(std::string_view verb, const std::filesystem::path& path);

// UserError: the folder is not that of a run. One sentence for all verbs.
[[noreturn]] void refuse_no_run(const std::filesystem::path& folder);

}  // namespace strait::base
