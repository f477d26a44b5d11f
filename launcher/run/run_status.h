#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace strait::run {

// Status and requests of a live run, for other processes on its machine. Both are files in the
// run's directory.

// The content of status.json; empty: none yet. UserError: it is damaged.
std::optional<nlohmann::json> read_run_status(const std::filesystem::path& run);
// Replaces status.json by a rename, so that readers never see half of it. Not synced, because it is
// outdated after a second. Where there is no room for another file, writes over the one that is
// there, without line breaks, and without processes if it has no room for them. False: it could not
// be written.
bool replace_run_status(const std::filesystem::path& file, const nlohmann::ordered_json& status);
// For a verb that needs a run that has started, or a live one: throws UserError.
[[noreturn]] void refuse_run_not_started(const std::filesystem::path& run);
[[noreturn]] void refuse_not_live(const std::filesystem::path& run);
// For a status without what this build writes: throws UserError.
[[noreturn]] void refuse_foreign_status(const std::filesystem::path& run,
                                        const std::exception& error);

// A request to the launcher of a live run: a file that the launcher polls for and removes.
enum class ReplicaRequest : std::uint8_t { leave, rejoin };

void request_replica(ReplicaRequest request, const std::filesystem::path& run,
                     std::uint32_t replica);

// The replicas of all requests since the last call, ascending; empty if the directory cannot be
// listed now.
std::vector<std::uint32_t> take_requests(ReplicaRequest request, const std::filesystem::path& run);

// One line of a process's log.
struct LogLine {
  std::string time;     // "2025-03-01 14:02:11.123"; if it has none, that of the previous line
  std::string process;  // "1.0"
  std::string text;
};

// Follows a log that is being written, line by line. Does not change the text.
class LogReader {
 public:
  explicit LogReader(const std::filesystem::path& file);

  const std::string& process() const { return process_; }
  // The complete lines since the last call; empty only at the end of the file, and at most a few
  // MiB. With `rest` also an incomplete line at the end.
  std::vector<LogLine> take(bool rest);

 private:
  std::filesystem::path file_;
  std::string process_;
  std::uint64_t taken_ = 0;
  std::string unfinished_;
  std::string time_;
};

// The logs in a folder, or only that of `process` if it is not empty; "10.0" sorts after "2.0".
std::vector<std::filesystem::path> log_files(const std::filesystem::path& folder,
                                             const std::string& process);

// The last line of a file, such as metrics.jsonl, that contains this text; empty: none.
std::string last_line_with(const std::filesystem::path& file, const std::string& text);

// Sorts lines of several logs by time; lines of one log keep their order. Pure.
std::vector<LogLine> by_time(std::vector<LogLine> lines);

}  // namespace strait::run
