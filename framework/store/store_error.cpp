#include "framework/store/store_error.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace strait::store {
namespace {

std::string reason_of(int error) {
  rlimit limit{};
  if (error != EMFILE || ::getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return std::generic_category().message(error);
  }
  return fmt::format(
      "this process may have no more than {} files open (ulimit -n); allow more: ulimit -n {}",
      limit.rlim_cur, std::max<rlim_t>(1024, 4 * limit.rlim_cur));
}

}  // namespace

StoreError system_error(std::string_view doing, const std::filesystem::path& path, int error) {
  StoreError::Kind kind = StoreError::Kind::storage_io;
  if (error == ENOSPC || error == EDQUOT) kind = StoreError::Kind::storage_full;
  if (error == ENOENT || error == ENOTDIR || error == EISDIR || error == ELOOP) {
    kind = StoreError::Kind::bad_input;
  }
  if (error == EACCES || error == EPERM) kind = StoreError::Kind::denied;
  return {kind, fmt::format("cannot {} {}: {}", doing, path.string(), reason_of(error))};
}

}  // namespace strait::store
