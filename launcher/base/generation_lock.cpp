#include "launcher/base/generation_lock.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <optional>
#include <sstream>

#include "framework/store/atomic_file.h"
#include "framework/store/input_file.h"
#include "framework/store/step_folders.h"
#include "launcher/base/errors.h"
#include "launcher/base/lock_file.h"
#include "launcher/base/process_identity.h"

namespace strait::base {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// A killed process goes away when its system calls return: a disk or network file system that hangs
// holds it.
constexpr std::chrono::seconds kGoneWithin{30};
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

std::optional<Holder> read_holder_of(int descriptor) {
  const auto holder = read_lock_holder(descriptor);
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

void record_holder(int descriptor, const LockOwner& self, const fs::path& path) {
  write_lock_holder(descriptor, path, {{"agent", self.host}, {"generation", self.generation}});
}

[[noreturn]] void refuse_fenced(std::uint32_t own, std::uint32_t newer, const fs::path& run) {
  throw UserError(
      ExitCode::fenced,
      fmt::format("this process is of generation {} of the run in {}, but generation {} has begun "
                  "there; it ends",
                  own, run.string(), newer));
}

// One lock file, open in this process.
class LockFile {
 public:
  explicit LockFile(const fs::path& path) : path_(path), descriptor_(open_lock_file(path)) {}

  // Takes the lock, or returns its holder. An empty Holder: it has not written its name yet.
  std::optional<Holder> take() {
    const bool refused = !try_lock(descriptor_.number());
    const std::optional<Holder> recorded = read_holder_of(descriptor_.number());
    const bool other = recorded && recorded->process.pid != ::getpid();
    if (refused) return recorded.value_or(Holder{});
    return other && recorded->process.exists() ? recorded : std::nullopt;
  }

  const fs::path& path() const { return path_; }
  std::string name() const { return path_.stem().string(); }
  FileDescriptor release() { return std::move(descriptor_); }

 private:
  fs::path path_;
  FileDescriptor descriptor_;
};

[[noreturn]] void refuse_held(const LockFile& lock, const Holder& holder) {
  throw UserError(ExitCode::stalled,
                  fmt::format("{} still holds {}{}; end it, then resume",
                              holder.process.pid == 0 ? "a process" : holder.describe(lock.name()),
                              lock.path().string(),
                              holder.process.exists()
                                  ? fmt::format(" {} s after it was killed", kGoneWithin.count())
                                  : ", and from here it cannot be ended"));
}

// What is to be done about a holder. A record may be that of the holder before, or empty, as long
// as a process that has just taken the lock has not written its own.
enum class HolderAction { end, leave, wait };

bool may_be_outdated(const Holder& holder, Clock::duration waited) {
  return holder.process.pid == 0 || waited < kRecordedWithin;
}

// Kills holders until there is none, or one that may stay. Returns what was killed.
template <class Decide>
std::string end_holders(LockFile& lock, const Decide& decide) {
  const auto began = Clock::now();
  std::string ended;
  while (const std::optional<Holder> holder = lock.take()) {
    const auto waited = Clock::now() - began;
    const HolderAction action = decide(*holder, waited);
    if (action == HolderAction::leave) return ended;
    if (action == HolderAction::end) {
      ended = holder->describe(lock.name());
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
  throw UserError(
      ExitCode::corrupt,
      fmt::format("{} does not hold a number. It counts the starts of this run and must never "
                  "decrease: write a number into it that is higher than any before",
                  file.string()));
}

std::uint32_t begun_generation(const fs::path& run_directory) {
  return read_generation(number_file(run_directory));
}

GenerationLock::GenerationLock(const fs::path& run_directory, const LockOwner& self) {
  store::make_directory(locks_of(run_directory));
  LockFile lock(locks_of(run_directory) / (self.process.text() + kSuffix));
  ended_ = end_holders(lock, [&](const Holder& holder, Clock::duration waited) {
    if (holder.generation > self.generation) {
      refuse_fenced(self.generation, holder.generation, run_directory);
    }
    if (holder.process.exists()) return HolderAction::end;
    if (!holder.process.here() && !may_be_outdated(holder, waited)) refuse_held(lock, holder);
    return HolderAction::wait;
  });
  descriptor_ = lock.release();
  record_holder(descriptor_.number(), self, lock.path());
  // Behind the lock: either the newer generation sees the lock, or this sees the number.
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
  return ended;
}

}  // namespace strait::base
