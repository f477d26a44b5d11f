#include "launcher/base/generation_lock.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <sstream>

#include "framework/store/atomic_file.h"
#include "framework/store/input_file.h"
#include "framework/store/step_folders.h"
#include "launcher/base/errors.h"

namespace strait::base {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// A killed process ends only when its system calls return; a disk or network file system that hangs
// delays it.
constexpr std::chrono::seconds kGoneWithin{30};
// Most processes are gone within some milliseconds, and a restart waits for this.
constexpr std::chrono::milliseconds kLookEvery{10};
// A process writes its record right after it has taken its lock.
constexpr std::chrono::seconds kRecordedWithin{1};

struct Holder {
  ProcessIdentity process;
  std::uint32_t host = 0;
  std::uint32_t generation = 0;

  std::string describe(const std::string& name) const {
    return fmt::format("process {} ({}) of generation {} on {}", process.pid, name, generation,
                       process.host);
  }
};

fs::path locks_of(const fs::path& run_directory) { return run_directory / kLocksFolder; }
fs::path number_file(const fs::path& run_directory) {
  return locks_of(run_directory) / "generation";
}
constexpr const char* kSuffix = ".lock";

fs::path lock_path(const fs::path& run_directory, const net::ProcessName& process) {
  store::make_directory(locks_of(run_directory));
  return locks_of(run_directory) / (process.text() + kSuffix);
}

std::optional<Holder> recorded_holder(const LockFile& file) {
  const auto holder = file.holder();
  if (!holder) return std::nullopt;
  const auto number = [&](const char* key) {
    const auto found = holder->fields.find(key);
    return found == holder->fields.end() || !found->is_number_unsigned()
               ? std::optional<std::uint32_t>()
               : found->get<std::uint32_t>();
  };
  if (!number("agent") || !number("generation")) return std::nullopt;
  return Holder{holder->process, *number("agent"), *number("generation")};
}

[[noreturn]] void refuse_fenced(std::uint32_t own, std::uint32_t newer, const fs::path& run) {
  throw UserError(ExitCode::fenced,
                  "this process is of generation {} of the run in {}, but generation {} has begun "
                  "there; it ends",
                  own, run.string(), newer);
}

// Takes the lock, or returns its holder. An empty Holder: it has not written its name yet.
std::optional<Holder> take(LockFile& file) {
  const bool refused = !file.try_lock();
  const std::optional<Holder> recorded = recorded_holder(file);
  const bool other = recorded && recorded->process.pid != ::getpid();
  if (refused) return recorded.value_or(Holder{});
  return other && recorded->process.exists() ? recorded : std::nullopt;
}

std::string process_of(const LockFile& file) { return file.path().stem().string(); }

[[noreturn]] void refuse_held(const LockFile& lock, const Holder& holder) {
  throw UserError(ExitCode::stalled, "{} still holds {}{}; end it, then resume",
                  holder.process.pid == 0 ? "a process" : holder.describe(process_of(lock)),
                  lock.path().string(),
                  holder.process.exists()
                      ? fmt::format(" {} s after it was killed", kGoneWithin.count())
                      : ", and from here it cannot be ended");
}

// What to do about a holder. Until a process that has just taken the lock has written its name, the
// file is empty or still names the holder before it.
enum class HolderAction { end, leave, wait };

bool may_be_outdated(const Holder& holder, Clock::duration waited) {
  return holder.process.pid == 0 || waited < kRecordedWithin;
}

// Kills holders until there is none, or one that may stay. Returns what was killed.
template <class Decide>
std::string end_holders(LockFile& lock, const Decide& decide) {
  const auto began = Clock::now();
  std::string ended;
  while (const std::optional<Holder> holder = take(lock)) {
    const auto waited = Clock::now() - began;
    const HolderAction action = decide(*holder, waited);
    if (action == HolderAction::leave) return ended;
    if (action == HolderAction::end) {
      ended = holder->describe(process_of(lock));
      send_signal(holder->process, SIGKILL);
    }
    if (waited > kGoneWithin) refuse_held(lock, *holder);
    ::poll(nullptr, 0, static_cast<int>(kLookEvery.count()));
  }
  return ended;
}

std::vector<fs::path> lock_files(const fs::path& run_directory) {
  std::vector<fs::path> files = store::entries_of(locks_of(run_directory));
  std::erase_if(files, [](const fs::path& file) { return file.extension() != kSuffix; });
  // Agents first: they start the others.
  std::stable_partition(files.begin(), files.end(), [](const fs::path& file) {
    const auto name = net::ProcessName::parse(file.stem().string());
    return name && name->is_host_agent();
  });
  return files;
}

}  // namespace

std::uint32_t read_generation(const fs::path& file) {
  if (!store::is_present(file)) return 0;
  std::istringstream in(store::read_text_file(file, 64));
  std::uint32_t number = 0;
  // Counted from 1 again, processes of former starts would look like present ones.
  if (in >> number) return number;
  throw UserError(ExitCode::corrupt,
                  "{} does not hold a number. It counts the starts of this run and must never "
                  "decrease: write a number into it that is higher than any before",
                  file.string());
}

std::uint32_t begun_generation(const fs::path& run_directory) {
  return read_generation(number_file(run_directory));
}

GenerationLock::GenerationLock(const fs::path& run_directory, const LockOwner& self)
    : file_(lock_path(run_directory, self.process)) {
  ended_ = end_holders(file_, [&](const Holder& holder, Clock::duration waited) {
    if (holder.generation > self.generation) {
      refuse_fenced(self.generation, holder.generation, run_directory);
    }
    if (holder.process.exists()) return HolderAction::end;
    if (!holder.process.here() && !may_be_outdated(holder, waited)) refuse_held(file_, holder);
    return HolderAction::wait;
  });
  file_.record({{"agent", self.host}, {"generation", self.generation}});
  // After the lock: either the newer generation sees the lock, or this process sees the number.
  const std::uint32_t begun = begun_generation(run_directory);
  if (begun > self.generation) refuse_fenced(self.generation, begun, run_directory);
}

std::vector<std::string> end_former_processes(const fs::path& run_directory, std::uint32_t host,
                                              std::uint32_t generation) {
  store::make_directory(locks_of(run_directory));
  const std::uint32_t begun = begun_generation(run_directory);
  if (begun > generation) refuse_fenced(generation, begun, run_directory);
  store::replace_file(number_file(run_directory), fmt::format("{}\n", generation));
  std::vector<std::string> ended;
  for (const fs::path& file : lock_files(run_directory)) {
    LockFile lock(file);
    const std::string gone = end_holders(lock, [&](const Holder& holder, Clock::duration waited) {
      if (holder.generation > generation) {
        refuse_fenced(generation, holder.generation, run_directory);
      }
      const bool of_other_host = holder.generation == generation && holder.host != host;
      if (of_other_host || holder.process.pid == ::getpid()) return HolderAction::leave;
      if (holder.process.exists()) return HolderAction::end;
      // In a directory that hosts share: its own host's agent ends it.
      const bool elsewhere = !holder.process.here() && !may_be_outdated(holder, waited);
      return elsewhere ? HolderAction::leave : HolderAction::wait;
    });
    if (!gone.empty()) ended.push_back(gone);
  }
  // One of them may have been killed while it wrote its number.
  store::remove_abandoned(number_file(run_directory));
  return ended;
}

}  // namespace strait::base
