#include "launcher/base/own_program.h"

namespace strait::base {

std::filesystem::path own_program() { return std::filesystem::read_symlink("/proc/self/exe"); }

}  // namespace strait::base
