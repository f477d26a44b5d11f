#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace strait::store {

// A file is not as it must be. what() is one sentence for the user: which file (and line or
// tensor), what was expected, what to do. The caller turns the kind into an exit code.
class StoreError : public std::runtime_error {
 public:
  enum class Kind {
    bad_input,     // a file of the user is missing, malformed or out of limits
    storage_full,  // no room; names the bytes needed and available
    storage_io,    // the disk failed
    denied,        // this user may not read or write it; trying again does not help
    corrupt,       // a file written by strait has changed
    mismatch,      // a correct file, but of another model, recipe or layout
    busy,          // another process owns it, or it is already complete
  };

  StoreError(Kind kind, const std::string& what) : std::runtime_error(what), kind_(kind) {}
  // A sentence with values, as fmt::format takes it.
  template <class... Values>
  requires(sizeof...(Values) > 0)
      StoreError(Kind kind, fmt::format_string<Values...> what, Values&&... values)
      : StoreError(kind, fmt::format(what, std::forward<Values>(values)...)) {}
  Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

// The error of a failed system call: "cannot <doing> <path>: <reason>". storage_full: no room;
// bad_input: a missing path; denied: missing permissions; storage_io: all others.
StoreError system_error(std::string_view doing, const std::filesystem::path& path, int error);

}  // namespace strait::store
