#include "launcher/base/run_lock.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "framework/fields/bounded_json.h"
#include "launcher/base/errors.h"
#include "launcher/base/own_program.h"
#include "launcher/base/run_file_names.h"
#include "launcher/base/text.h"

namespace strait::base {
namespace {

[[noreturn]] void fail(const char* doing, const std::filesystem::path& path) {
  throw UserError(errno == ENOSPC ? ExitCode::storage_full : ExitCode::storage_io,
                  "cannot {} {}: {}", doing, path.string(), std::strerror(errno));
}

std::filesystem::path lock_file(const std::filesystem::path& run) { return run / kLockFile; }

std::string own_job() {
  const char* const job = std::getenv("SLURM_JOB_ID");
  return job == nullptr ? "" : job;
}

std::optional<LiveRun> read_holder(const LockFile& file) {
  const auto holder = file.holder();
  if (!holder) return std::nullopt;
  const auto text = [&](const char* key) {
    const auto found = holder->fields.find(key);
    return found == holder->fields.end() || !found->is_string() ? "" : found->get<std::string>();
  };
  return LiveRun{holder->process, text("since"), text("job")};
}

bool is_own(const LiveRun& holder) { return holder.here() && holder.pid == ::getpid(); }

[[noreturn]] void refuse_live(const std::filesystem::path& run,
                              const std::optional<LiveRun>& holder) {
  if (holder && !holder->here()) {
    throw UserError(ExitCode::bad_input,
                    "{} is in use by a run on another host ({}), or was when that host "
                    "died; if it did, remove {}",
                    run.string(), holder->sentence(), lock_file(run).string());
  }
  const std::string owner = holder ? holder->sentence() : "a process";
  throw UserError(ExitCode::bad_input,
                  "{} is in use by a live run ({}); watch it with: {}, end it with: {}",
                  run.string(), owner, strait_command("watch", run), strait_command("stop", run));
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

bool LiveRun::alive() const {
  if (here()) return exists();
  // Slurm restarts a job only after its previous start has ended.
  return host != own_host() && (job.empty() || job != own_job());
}

std::string LiveRun::sentence() const {
  return fmt::format("process {}{}{}, since {}", pid, here() ? "" : " of host " + host,
                     job.empty() ? "" : " in Slurm job " + job, since);
}

std::string LiveRun::suspension() const {
  if (!suspended()) return "";
  return fmt::format("process {0} is suspended (SIGSTOP or Ctrl-Z); let it go on: kill -CONT {0}",
                     pid);
}

RunLock::RunLock(const std::filesystem::path& run) : file_(lock_file(run)) {
  const bool refused = !file_.try_lock();
  const std::optional<LiveRun> earlier = read_holder(file_);
  // Checked even if the lock was free, because some file systems have no locks.
  const bool other = earlier && !is_own(*earlier) && earlier->alive();
  if (refused || other) refuse_live(run, earlier);
  file_.record({{"since", fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::localtime(std::time(nullptr)))},
                {"job", own_job()}});
}

RunLock::~RunLock() {
  // This process may live on, and where flock is not supported its pid would keep the lock.
  if (file_.descriptor() >= 0) file_.erase_holder();
}

bool RunLock::is_of(const std::filesystem::path& run) const {
  struct stat held {};
  struct stat present {};
  if (::fstat(file_.descriptor(), &held) != 0) return true;
  if (::stat(lock_file(run).c_str(), &present) != 0) return errno != ENOENT && errno != ENOTDIR;
  if (held.st_dev == present.st_dev && held.st_ino == present.st_ino) return true;
  // Some file systems change a file's number now and then, so the content decides.
  const auto file = LockFile::existing(lock_file(run));
  if (!file) return errno != ENOENT && errno != ENOTDIR;
  const auto holder = read_holder(*file);
  return holder && is_own(*holder);
}

std::optional<LiveRun> RunLock::holder(const std::filesystem::path& run) {
  const auto file = LockFile::existing(lock_file(run));
  if (!file) return std::nullopt;
  const std::optional<LiveRun> fields = read_holder(*file);
  return fields && fields->alive() ? fields : std::nullopt;
}

}  // namespace strait::base
