#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "launcher/process/process_identity.h"

namespace strait::process {

// The holder of a lock, as its file has it: one JSON object of at most 512 bytes.
struct LockHolder {
  ProcessIdentity process;
  nlohmann::json fields;  // all of the object: locks of a kind have further ones
};

// nullopt: it has written nothing yet, or died while it wrote.
std::optional<LockHolder> read_lock_holder(int descriptor);

// This process, with further fields. UserError: it cannot be written.
void write_lock_holder(int descriptor, const std::filesystem::path& path,
                       const nlohmann::ordered_json& further);

}  // namespace strait::process
