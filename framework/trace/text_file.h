#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace strait::trace {

// Whole files of text. Readers of `path` see the old content or the new one, never a part; unlike a
// checkpoint it may still be lost with the machine's power. Both throw TraceError.
void replace_text(const std::filesystem::path& path, std::string_view text);

// Refuses a file above `most_bytes` before reading it.
std::string read_text(const std::filesystem::path& path, std::uintmax_t most_bytes);

}  // namespace strait::trace
