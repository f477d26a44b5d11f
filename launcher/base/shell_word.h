#pragma once

#include <string>

namespace strait::base {

// A text as one word of a POSIX shell, whatever is in it. Pure.
std::string shell_word(const std::string& text);

}  // namespace strait::base
