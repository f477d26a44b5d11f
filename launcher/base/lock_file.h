#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "framework/file_descriptor.h"
#include "launcher/base/process_identity.h"

namespace strait::base {

// A file that one process at a time has locked, and that says which. The lock is the kernel's
// (flock), which gives it up with the process, however that ends; where a file system has no locks,
// what the file says counts.

// Opens the file, which is created where it does not exist. UserError.
FileDescriptor open_lock_file(const std::filesystem::path& path);

// Locks it, until the descriptor is closed. False: another process has it locked.
bool try_lock(int descriptor);

// The holder, as the file has it: one JSON object of at most 512 bytes.
struct LockHolder {
  ProcessIdentity process;
  nlohmann::json fields;  // all of the object: locks of a kind have further ones
};

// nullopt: it has written nothing yet, or died while it wrote.
std::optional<LockHolder> read_lock_holder(int descriptor);

// This process, with further fields. UserError: it cannot be written.
void write_lock_holder(int descriptor, const std::filesystem::path& path,
                       const nlohmann::ordered_json& further);

}  // namespace strait::base
