#pragma once

#include <filesystem>

#include "framework/file_descriptor.h"

namespace strait::store {

// Locks a file, which is created if it does not exist, until the descriptor is closed or the
// process ends. Not open: another process holds the lock. StoreError: the file cannot be opened or
// locked.
FileDescriptor try_lock(const std::filesystem::path& path);

}  // namespace strait::store
