#pragma once

#include <filesystem>

namespace strait::base {

// The file of the running program; the other programs and files of the build lie beside it.
std::filesystem::path own_program();

}  // namespace strait::base
