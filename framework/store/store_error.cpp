#include "framework/store/store_error.h"

#include <fmt/format.h>

#include <cerrno>
#include <system_error>

namespace strait::store {

StoreError system_error(std::string_view doing, const std::filesystem::path& path, int error) {
  StoreError::Kind kind = StoreError::Kind::storage_io;
  if (error == ENOSPC || error == EDQUOT) kind = StoreError::Kind::storage_full;
  if (error == ENOENT || error == ENOTDIR || error == EISDIR || error == ELOOP) {
    kind = StoreError::Kind::bad_input;
  }
  if (error == EACCES || error == EPERM) kind = StoreError::Kind::denied;
  return {kind, fmt::format("cannot {} {}: {}", doing, path.string(),
                            std::generic_category().message(error))};
}

}  // namespace strait::store
