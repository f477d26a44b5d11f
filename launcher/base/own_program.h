#pragma once

#include <filesystem>

namespace strait::base {

// The file of the running program. The other programs of the build (strait-stage,
// strait-stage-torch) and the scripts that they start (strait-tokenizer.py) are in its folder:
// build/PRESET/bin of a checkout, PREFIX/libexec/strait of an installation, strait/bin of the
// wheel.
std::filesystem::path own_program();

// The folder with recipes/ of such a program: the checkout, or PREFIX/share/strait, where the
// wheel's PREFIX is its package. Empty: there is none above the program.
std::filesystem::path shared_folder(const std::filesystem::path& program);

}  // namespace strait::base
