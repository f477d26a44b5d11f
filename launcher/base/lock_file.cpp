#include "launcher/base/lock_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "framework/fields/bounded_json.h"
#include "launcher/base/errors.h"

namespace strait::base {
namespace {

[[noreturn]] void fail(const char* doing, const std::filesystem::path& path) {
  throw UserError(errno == ENOSPC ? ExitCode::storage_full : ExitCode::storage_io,
                  fmt::format("cannot {} {}: {}", doing, path.string(), std::strerror(errno)));
}

}  // namespace

LockFile::LockFile(std::filesystem::path path) : LockFile(std::move(path), FileDescriptor()) {
  file_ = FileDescriptor(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!file_.open()) fail("open", path_);
}

std::optional<LockFile> LockFile::existing(std::filesystem::path path, bool only_read) {
  FileDescriptor file(::open(path.c_str(), (only_read ? O_RDONLY : O_RDWR) | O_CLOEXEC));
  if (!file.open()) return std::nullopt;
  return LockFile(std::move(path), std::move(file));
}

// Errors other than EWOULDBLOCK (ENOLCK, ENOSYS) are of file systems without locks.
bool LockFile::try_lock() {
  return ::flock(file_.number(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

std::optional<LockHolder> LockFile::holder() const {
  std::array<char, 512> bytes{};
  const ssize_t size = ::pread(file_.number(), bytes.data(), bytes.size(), 0);
  if (size <= 0) return std::nullopt;
  try {
    nlohmann::json fields =
        fields::parse_bounded_json({bytes.data(), static_cast<std::size_t>(size)});
    const nlohmann::json& pid = fields.at("pid");
    const nlohmann::json& started = fields.at("started");
    if (!pid.is_number_integer() || !started.is_number_unsigned()) return std::nullopt;
    ProcessIdentity process{pid.get<std::int64_t>(), started.get<std::uint64_t>(),
                            fields.value("host", ""), fields.value("boot", "")};
    return LockHolder{std::move(process), std::move(fields)};
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  } catch (const fields::JsonError&) {
    return std::nullopt;
  }
}

void LockFile::record(const nlohmann::ordered_json& further) {
  const ProcessIdentity own = ProcessIdentity::own();
  nlohmann::ordered_json fields = {
      {"pid", own.pid}, {"started", own.started}, {"host", own.host}, {"boot", own.boot}};
  fields.update(further);
  // The host's name and variables of Slurm need not be UTF-8.
  const std::string text =
      fields.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  const bool written =
      ::ftruncate(file_.number(), 0) == 0 &&
      ::pwrite(file_.number(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
  if (!written) fail("write", path_);
}

void LockFile::erase_holder() {
  // A failure is harmless: the end of this process also releases the lock.
  [[maybe_unused]] const int emptied = ::ftruncate(file_.number(), 0);
}

}  // namespace strait::base
