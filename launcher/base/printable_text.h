#pragma once

#include <string>
#include <string_view>

namespace strait::base {

// A line fit for a terminal, whatever stages, files and file names have put into it: control
// characters are left out, and what is not UTF-8 shows as U+FFFD. Pure.
std::string printable(std::string_view line);

// The same for several lines: line ends stay.
std::string printable_lines(std::string_view lines);

}  // namespace strait::base
