#pragma once

#include <filesystem>
#include <string>

namespace strait::app {

// How a command begins that the user can copy: "./strait" where `directory` is the checkout that
// `program` was built in, because only the script is there; else "strait", which is in the PATH.
std::string command_name(const std::filesystem::path& directory,
                         const std::filesystem::path& program);

// In the current directory, of this program.
std::string command_name();

}  // namespace strait::app
