#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>

namespace strait::store {

// Something about a file is not as it must be. what() is one sentence for the user: which file (and
// line or tensor), what was expected, what to do. The caller turns the kind into an exit code.
class StoreError : public std::runtime_error {
 public:
  enum class Kind {
    bad_input,     // a file the user gave is missing, malformed or out of limits
    storage_full,  // no room: names the bytes needed and available
    storage_io,    // the disk failed
    denied,        // this user may not read or write it; no further attempt helps
    corrupt,       // a file that strait wrote is not what it wrote
    mismatch,      // a good file, but of another model, recipe or layout
    busy,          // another process owns it, or it is already complete
  };

  StoreError(Kind kind, const std::string& what) : std::runtime_error(what), kind_(kind) {}
  Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

// What a failed system call means: "cannot <doing> <path>: <reason>", storage_full for no room,
// bad_input for what is not there, denied for missing permissions, storage_io for the rest.
StoreError system_error(std::string_view doing, const std::filesystem::path& path, int error);

}  // namespace strait::store
