#pragma once

#include <filesystem>

namespace strait::store {

// Whether the directory of a checkpoint has a manifest: it was complete once.
bool is_committed(const std::filesystem::path& checkpoint);

}  // namespace strait::store
