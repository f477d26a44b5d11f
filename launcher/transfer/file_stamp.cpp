#include "launcher/transfer/file_stamp.h"

#include <sys/stat.h>

#include <cerrno>

#include "framework/store/store_error.h"

namespace strait::transfer {

FileStamp FileStamp::of(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) throw store::system_error("look at", path, errno);
  constexpr std::int64_t kNanoseconds = 1'000'000'000;
  return {static_cast<std::uint64_t>(status.st_size), status.st_ino,
          status.st_ctim.tv_sec * kNanoseconds + status.st_ctim.tv_nsec};
}

}  // namespace strait::transfer
