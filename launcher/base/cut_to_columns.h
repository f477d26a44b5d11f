#pragma once

#include <cstddef>
#include <string>

namespace strait::base {

// The beginning of a line, at most so many characters of UTF-8. Pure.
std::string cut_to_columns(const std::string& text, std::size_t columns);

}  // namespace strait::base
