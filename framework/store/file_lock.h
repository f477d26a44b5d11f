#pragma once

#include <filesystem>

#include "framework/file_descriptor.h"

namespace strait::store {

// Locks a file, which is created if it does not exist, until the descriptor is closed or the
// process ends. Not open: another process holds the lock. StoreError: the file cannot be opened or
// locked.
FileDescriptor try_lock(const std::filesystem::path& path);

// Whether the open file is the one that has this name now. Between open and lock another process
// may have removed it: then the lock protects nothing.
bool is_same_file(const FileDescriptor& file, const std::filesystem::path& path);

}  // namespace strait::store
