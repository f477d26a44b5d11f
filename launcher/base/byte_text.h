#pragma once

#include <cstdint>
#include <string>

namespace strait::base {

// "980 B", "98.0 kB", "1.2 MB", "3.45 GB".
std::string byte_text(std::uint64_t bytes);

}  // namespace strait::base
