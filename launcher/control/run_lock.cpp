#include "launcher/control/run_lock.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>

#include "framework/store/bounded_json.h"
#include "launcher/base/errors.h"

namespace strait::control {
namespace {

std::filesystem::path lock_file(const std::filesystem::path& run) { return run / "lock"; }

std::string own_job() {
  const char* const job = std::getenv("SLURM_JOB_ID");
  return job == nullptr ? "" : job;
}

std::optional<LiveRun> read_holder(int descriptor) {
  std::array<char, 512> bytes{};
  const ssize_t size = ::pread(descriptor, bytes.data(), bytes.size(), 0);
  if (size <= 0) return std::nullopt;
  try {
    const nlohmann::json fields =
        store::parse_bounded_json({bytes.data(), static_cast<std::size_t>(size)});
    return LiveRun{{fields.at("pid").get<std::int64_t>(), fields.at("started").get<std::uint64_t>(),
                    fields.value("host", ""), fields.value("boot", "")},
                   fields.at("since").get<std::string>(),
                   fields.value("job", "")};
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  } catch (const store::JsonError&) {
    return std::nullopt;  // its writer died while writing: not held
  }
}

void write_holder(int descriptor, const std::filesystem::path& path) {
  const auto own = process::ProcessIdentity::own();
  const nlohmann::ordered_json fields = {
      {"pid", own.pid},
      {"started", own.started},
      {"since", fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::localtime(std::time(nullptr)))},
      {"host", own.host},
      {"boot", own.boot},
      {"job", own_job()}};
  const std::string text = fields.dump() + "\n";
  const bool written =
      ::ftruncate(descriptor, 0) == 0 &&
      ::pwrite(descriptor, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
  if (!written) {
    const base::ExitCode code =
        errno == ENOSPC ? base::ExitCode::storage_full : base::ExitCode::storage_io;
    throw base::UserError(code,
                          fmt::format("cannot write {}: {}", path.string(), std::strerror(errno)));
  }
}

[[noreturn]] void refuse_live(const std::filesystem::path& run,
                              const std::optional<LiveRun>& holder) {
  if (holder && !holder->here()) {
    throw base::UserError(
        base::ExitCode::bad_input,
        fmt::format("{} is in use by a run on another host ({}), or was when that host "
                    "died; if it did, remove {}",
                    run.string(), holder->sentence(), lock_file(run).string()));
  }
  const std::string owner = holder ? holder->sentence() : "a process";
  throw base::UserError(
      base::ExitCode::bad_input,
      fmt::format("{} is in use by a live run ({}); watch it with: strait status {}, "
                  "end it with: strait stop {}",
                  run.string(), owner, run.string(), run.string()));
}

}  // namespace

bool LiveRun::alive() const {
  if (here()) return exists();
  // Slurm restarts a job only after its former start has ended.
  return host != process::own_host() && (job.empty() || job != own_job());
}

std::string LiveRun::sentence() const {
  return fmt::format("process {}{}{}, since {}", pid, here() ? "" : " of host " + host,
                     job.empty() ? "" : " in Slurm job " + job, since);
}

RunLock::RunLock(const std::filesystem::path& run) {
  const std::filesystem::path path = lock_file(run);
  descriptor_ = store::FileDescriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!descriptor_.open()) {
    throw base::UserError(base::ExitCode::storage_io,
                          fmt::format("cannot open {}: {}", path.string(), std::strerror(errno)));
  }
  const bool taken = ::flock(descriptor_.number(), LOCK_EX | LOCK_NB) == 0;
  const std::optional<LiveRun> earlier = read_holder(descriptor_.number());
  // Checked even if flock succeeded: some file systems do not support it.
  const bool own = earlier && earlier->here() && earlier->pid == ::getpid();
  const bool other = earlier && !own && earlier->alive();
  if (!taken || other) refuse_live(run, earlier);
  write_holder(descriptor_.number(), path);
}

RunLock::~RunLock() {
  // This process may live on, and its pid would keep the lock where flock is not supported. A
  // failure is harmless: the end of the process releases the lock, too.
  if (descriptor_.open()) [[maybe_unused]]
    const int emptied = ::ftruncate(descriptor_.number(), 0);
}

std::optional<LiveRun> RunLock::holder(const std::filesystem::path& run) {
  const store::FileDescriptor file(::open(lock_file(run).c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.open()) return std::nullopt;
  const std::optional<LiveRun> fields = read_holder(file.number());
  return fields && fields->alive() ? fields : std::nullopt;
}

}  // namespace strait::control
