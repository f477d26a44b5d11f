#pragma once

#include <filesystem>

namespace strait::store {

// Whether the directory of a checkpoint has a manifest: it was complete once. StoreError: that
// cannot be seen; false only where the manifest is certainly absent.
bool is_committed(const std::filesystem::path& checkpoint);

}  // namespace strait::store
