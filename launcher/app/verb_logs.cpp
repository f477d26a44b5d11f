#include "launcher/app/verb_logs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>

#include <cstdio>
#include <iterator>
#include <map>
#include <vector>

#include "launcher/base/printable_text.h"
#include "launcher/control/log_reader.h"
#include "launcher/control/run_directory.h"
#include "launcher/base/user_error.h"

namespace strait::app {
namespace {

namespace fs = std::filesystem;

constexpr int kFollowEvery = 200;  // milliseconds

// All logs that are asked for; processes that start later are found too.
class RunLogs {
 public:
  explicit RunLogs(const LogWords& words)
      : folder_(words.run / "logs"), process_(words.process), named_(words.process.empty()) {}

  bool empty() const { return readers_.empty(); }
  bool names_processes() const { return named_; }

  std::vector<control::LogLine> take(bool rest) {
    for (const fs::path& file : control::log_files(folder_, process_)) {
      readers_.try_emplace(file.filename().string(), file);
    }
    std::vector<control::LogLine> lines;
    for (auto& [name, reader] : readers_) {
      // A log longer than one piece is taken in several.
      for (auto piece = reader.take(rest); !piece.empty(); piece = reader.take(rest)) {
        lines.insert(lines.end(), std::make_move_iterator(piece.begin()),
                     std::make_move_iterator(piece.end()));
      }
    }
    return control::by_time(std::move(lines));
  }

 private:
  fs::path folder_;
  std::string process_;
  bool named_;
  std::map<std::string, control::LogReader> readers_;
};

void print_log(const std::vector<control::LogLine>& lines, bool with_process) {
  for (const control::LogLine& line : lines) {
    const std::string text = base::printable(line.text);
    if (with_process) {
      fmt::print("{} | {}\n", line.process, text);
    } else {
      fmt::print("{}\n", text);
    }
  }
  std::fflush(stdout);
}

[[noreturn]] void no_such_log(const LogWords& words) {
  std::vector<std::string> known;
  for (const fs::path& file : control::log_files(words.run / "logs", "")) {
    known.push_back(file.stem().string());
  }
  if (known.empty()) {
    throw base::UserError(base::ExitCode::bad_input,
                    fmt::format("{} has no logs; name the directory of a run that has started, "
                                "such as runs/NAME",
                                words.run.string()));
  }
  throw base::UserError(base::ExitCode::bad_input,
                  fmt::format("{} has no process {}; it has {}", words.run.string(), words.process,
                              fmt::join(known, ", ")));
}

}  // namespace

base::ExitCode show_logs(const LogWords& words) {
  RunLogs logs(words);
  std::vector<control::LogLine> lines = logs.take(!words.follow);
  if (logs.empty() && !(words.follow && control::RunDirectory::live(words.run))) no_such_log(words);
  if (words.last > 0 && lines.size() > words.last) {
    lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(words.last));
  }
  print_log(lines, logs.names_processes());
  while (words.follow) {
    // Looked at first: what a run writes last is there when it is gone.
    const bool live = control::RunDirectory::live(words.run).has_value();
    print_log(logs.take(!live), logs.names_processes());
    if (!live) break;
    ::poll(nullptr, 0, kFollowEvery);
  }
  return base::ExitCode::done;
}

}  // namespace strait::app
