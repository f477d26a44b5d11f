#pragma once

#include <filesystem>

namespace strait::base {

// The file of the running program. The other programs and files of the build are in the same
// folder.
std::filesystem::path own_program();

}  // namespace strait::base
