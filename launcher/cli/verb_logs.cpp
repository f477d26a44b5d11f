#include <poll.h>

#include <cstdio>

#include "launcher/base/run_file_names.h"
#include "launcher/cli/command_line.h"
#include "launcher/cli/verbs.h"
#include "launcher/run/run_directory.h"
#include "launcher/run/run_status.h"

namespace strait::cli {
namespace {

struct LogOptions {
  std::filesystem::path run;
  std::string process;   // "1.0"; empty: all, in the order of their times
  bool follow = false;   // until the run is over
  std::size_t last = 0;  // begin with so many lines; 0: with all
};

namespace fs = std::filesystem;

constexpr int kFollowEvery = 200;  // milliseconds

// The logs that are shown, including logs of processes that start later.
class RunLogs {
 public:
  explicit RunLogs(const LogOptions& options)
      : folder_(options.run / base::kLogsFolder),
        process_(options.process),
        named_(options.process.empty()) {}

  bool empty() const { return readers_.empty(); }
  bool names_processes() const { return named_; }

  std::vector<run::LogLine> take(bool rest) {
    for (const fs::path& file : run::log_files(folder_, process_)) {
      readers_.try_emplace(file.filename().string(), file);
    }
    std::vector<run::LogLine> lines;
    for (auto& [name, reader] : readers_) {
      // Long logs are read in several pieces.
      for (auto piece = reader.take(rest); !piece.empty(); piece = reader.take(rest)) {
        lines.insert(lines.end(), std::make_move_iterator(piece.begin()),
                     std::make_move_iterator(piece.end()));
      }
    }
    return run::by_time(std::move(lines));
  }

 private:
  fs::path folder_;
  std::string process_;
  bool named_;
  std::map<std::string, run::LogReader> readers_;
};

void print_log(const std::vector<run::LogLine>& lines, bool with_process) {
  for (const run::LogLine& line : lines) {
    const std::string text = base::printable(line.text);
    if (with_process) {
      fmt::print("{} | {}\n", line.process, text);
    } else {
      fmt::print("{}\n", text);
    }
  }
  std::fflush(stdout);
}

[[noreturn]] void no_such_log(const LogOptions& options) {
  std::vector<std::string> known;
  for (const fs::path& file : run::log_files(options.run / base::kLogsFolder, "")) {
    known.push_back(file.stem().string());
  }
  if (known.empty() && run::RunDirectory::live(options.run)) {
    throw base::UserError(base::ExitCode::bad_input,
                          "{} is being prepared and has no logs yet; wait for them: {}",
                          options.run.string(), base::strait_command("logs --follow", options.run));
  }
  if (known.empty()) run::refuse_run_not_started(options.run);
  throw base::UserError(base::ExitCode::bad_input, "{} has no process {}; it has {}",
                        options.run.string(), options.process, fmt::join(known, ", "));
}

base::ExitCode show_logs(const LogOptions& options) {
  RunLogs logs(options);
  std::vector<run::LogLine> lines = logs.take(!options.follow);
  if (logs.empty() && !(options.follow && run::RunDirectory::live(options.run)))
    no_such_log(options);
  if (options.last > 0 && lines.size() > options.last) {
    lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(options.last));
  }
  print_log(lines, logs.names_processes());
  while (options.follow) {
    // Checked before reading: once the run has ended, its last lines are in the files.
    const bool live = run::RunDirectory::live(options.run).has_value();
    print_log(logs.take(!live), logs.names_processes());
    if (!live) break;
    ::poll(nullptr, 0, kFollowEvery);
  }
  return base::ExitCode::done;
}

}  // namespace

void add_logs(CLI::App& cli, Command& command) {
  const auto options = std::make_shared<LogOptions>();
  CLI::App* verb = cli.add_subcommand("logs", "what the processes of a run wrote");
  add_run_argument(verb, options->run)->required();
  verb->add_option("process", options->process, "one, such as 1.0; else all, by time");
  verb->add_flag("-f,--follow", options->follow, "go on until the run is over");
  verb->add_option("--last", options->last, "begin with so many lines; 0: with all")
      ->check(up_to(1'000'000'000));
  verb->callback([options, &command] { command.run = [options] { return show_logs(*options); }; });
}

}  // namespace strait::cli
