#include "framework/store/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <random>
#include <system_error>

#include "framework/store/file_lock.h"
#include "framework/store/file_progress.h"
#include "framework/store/input_file.h"
#include "framework/store/step_folders.h"
#include "framework/store/store_error.h"

namespace strait::store {
namespace {

// Small enough for signs of progress on a slow disk.
constexpr std::uint64_t kFlushWindow = std::uint64_t{8} << 20U;
constexpr const char* kTemporary = ".tmp-";

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

std::uint64_t free_bytes(const std::filesystem::path& folder) {
  struct statvfs status {};
  if (::statvfs(folder.c_str(), &status) != 0) return 0;
  return static_cast<std::uint64_t>(status.f_bavail) * status.f_frsize;
}

// Locks a temporary file as long as its writer lives. False: remove_abandoned() was faster.
// Not every file system has locks. There, nothing is abandoned either.
bool lock_temporary(const FileDescriptor& file, const std::filesystem::path& path) {
  if (::flock(file.number(), LOCK_EX | LOCK_NB) != 0) return errno != EWOULDBLOCK;
  return is_same_file(file, path);
}

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path path, std::uint64_t expected_bytes)
    : path_(std::move(path)), expected_(expected_bytes) {
  do {
    // Processes of two hosts that share the directory may have the same pid.
    temporary_ = fmt::format("{}{}{}-{:08x}", path_.string(), kTemporary, ::getpid(),
                             std::random_device()());
    descriptor_ =
        FileDescriptor(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (!descriptor_.open()) throw system_error("create", path_, errno);
  } while (!lock_temporary(descriptor_, temporary_));
  if (expected_ > 0) preallocate(expected_);
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::preallocate(std::uint64_t bytes) {
  int result = 0;
  do {
    // KEEP_SIZE, so that the file's size shows what was written and not what was reserved.
    result = ::fallocate(descriptor_.number(), FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  // Not every file system supports this. Without it, writing shows whether there is room.
  if (result != 0 && errno != EOPNOTSUPP && errno != ENOSYS) fail("preallocate", errno);
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  if (!descriptor_.open()) throw std::logic_error("write to a voided file: " + path_.string());
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = ::write(descriptor_.number(), bytes.data() + done,
                                  std::min(bytes.size() - done, kFilePiece));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      // The report says how much room the file would have needed.
      expected_ = std::max<std::uint64_t>(expected_, written_ + bytes.size() - done);
      fail("write", errno);
    }
    hash_.update(bytes.subspan(done, static_cast<std::size_t>(count)));
    done += static_cast<std::size_t>(count);
    written_ += static_cast<std::uint64_t>(count);
    file_progress() += static_cast<std::uint64_t>(count);
    start_writeback();
  }
}

// Without this the kernel buffers all bytes, and the final fsync writes them for minutes without a
// sign of progress. One window is written while the next one is filled.
void AtomicFile::start_writeback() {
  if (written_ - flushed_ < kFlushWindow) return;
  const auto flush = [&](std::uint64_t begin, std::uint64_t bytes, unsigned flags) {
    const int result = ::sync_file_range(descriptor_.number(), static_cast<off64_t>(begin),
                                         static_cast<off64_t>(bytes), flags);
    // Not every file system supports this. The final fsync writes then.
    const bool cannot =
        errno == ENOSYS || errno == EINVAL || errno == ESPIPE || errno == EOPNOTSUPP;
    if (result != 0 && !cannot && errno != EINTR) fail("write", errno);
    ++file_progress();
  };
  flush(flushed_, written_ - flushed_, SYNC_FILE_RANGE_WRITE);
  flush(waited_, flushed_ - waited_,
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
  waited_ = std::exchange(flushed_, written_);
}

FileSummary AtomicFile::commit(const std::function<void()>& may_rename) {
  if (!descriptor_.open()) throw std::logic_error("commit of a voided file: " + path_.string());
  // fsync before rename: otherwise a power cut could leave the new name with old or no bytes.
  if (::fsync(descriptor_.number()) != 0) fail("make durable", errno);
  ++file_progress();
  std::error_code unknown;  // then it may replace a file
  const bool replaced = std::filesystem::exists(path_, unknown) || unknown;
  try {
    if (may_rename) may_rename();
  } catch (...) {
    discard();
    throw;
  }
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("put in place", errno);
  ++file_progress();
  temporary_.clear();
  // Only now, because it ends the lock. The bytes are durable, so that no error can be new.
  descriptor_ = FileDescriptor();
  try {
    sync_directory(folder_of(path_));
  } catch (const StoreError&) {
    // The caller gets an error, so a new file must not stay.
    if (!replaced) ::unlink(path_.c_str());
    throw;
  }
  return {written_, hash_.hex()};
}

void AtomicFile::fail(const char* doing, int error) {
  discard();
  if (error != ENOSPC && error != EDQUOT) throw system_error(doing, path_, error);
  const std::uint64_t available = free_bytes(folder_of(path_));
  throw StoreError(
      StoreError::Kind::storage_full,
      "no room to write {}: {} bytes are needed, {} are available in {}; make room there",
      path_.string(), std::max(expected_, written_), available, folder_of(path_).string());
}

void AtomicFile::discard() noexcept {
  descriptor_ = FileDescriptor();
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  temporary_.clear();
}

void remove_abandoned(const std::filesystem::path& path) {
  const std::string prefix = path.filename().string() + kTemporary;
  for (const std::filesystem::path& entry : entries_of(folder_of(path))) {
    if (!entry.filename().string().starts_with(prefix)) continue;
    const FileDescriptor file(::open(entry.c_str(), O_WRONLY | O_CLOEXEC));
    if (!file.open() || ::flock(file.number(), LOCK_EX | LOCK_NB) != 0) continue;
    ::unlink(entry.c_str());
  }
}

FileSummary replace_file(const std::filesystem::path& path, std::string_view bytes) {
  AtomicFile file(path, bytes.size());
  file.write(std::as_bytes(std::span(bytes)));
  return file.commit();
}

FileSummary copy_file(const std::filesystem::path& from, const std::filesystem::path& to) {
  const InputFile input(from);
  AtomicFile output(to, input.size());
  input.each_piece(0, input.size(), kFilePiece, [&](auto bytes) { output.write(bytes); });
  return output.commit();
}

FileDescriptor unnamed_file(const std::filesystem::path& prefix) {
  std::string name = prefix.string() + ".XXXXXX";
  FileDescriptor file(::mkostemp(name.data(), O_CLOEXEC));
  if (!file.open()) throw system_error("create a file in", prefix.parent_path(), errno);
  if (::unlink(name.c_str()) != 0) throw system_error("remove", name, errno);
  return file;
}

void make_directory(const std::filesystem::path& path) {
  if (path.empty()) return;
  if (::mkdir(path.c_str(), 0755) == 0) {
    sync_directory(folder_of(path));
    return;
  }
  const int error = errno;
  std::error_code ignored;
  if (error == EEXIST && std::filesystem::is_directory(path, ignored)) return;
  if (error == EEXIST && std::filesystem::is_symlink(path, ignored)) {
    throw StoreError(StoreError::Kind::bad_input,
                     "cannot make the directory {}: it is a symbolic link to {}, which is not a "
                     "directory; make that directory, or remove the link",
                     path.string(), std::filesystem::read_symlink(path, ignored).string());
  }
  if (error != ENOENT || !path.has_parent_path() || path == path.parent_path()) {
    throw system_error("make the directory", path, error);
  }
  make_directory(path.parent_path());
  if (::mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) {
    throw system_error("make the directory", path, errno);
  }
  sync_directory(folder_of(path));
}

void sync_directory(const std::filesystem::path& path) {
  // A rename is durable only after an fsync of its directory.
  const FileDescriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.open()) throw system_error("open the directory", path, errno);
  if (::fsync(folder.number()) != 0) throw system_error("make durable", path, errno);
  ++file_progress();
}

}  // namespace strait::store
