#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "launcher/base/errors.h"
#include "launcher/base/run_file_names.h"
#include "launcher/base/stop_signals.h"
#include "launcher/cli/full_screen.h"
#include "launcher/cli/run_list.h"
#include "launcher/cli/run_options.h"
#include "launcher/cli/status_text.h"
#include "launcher/cli/verbs.h"
#include "launcher/run/log_reader.h"
#include "launcher/run/run_directory.h"
#include "launcher/run/run_status.h"

namespace strait::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr auto kDrawEvery = std::chrono::milliseconds(500);
// Of output that is no terminal.
constexpr ScreenSize kPipeSize = {120, 60};

// Reads the state of a run from its files, repeatedly.
class WatchedRun {
 public:
  explicit WatchedRun(fs::path run) : run_(std::move(run)), metrics_(run_ / base::kMetricsFile) {}

  bool live() const { return live_; }

  // The lines of one frame; empty while the run has not started.
  std::optional<std::vector<std::string>> frame(ScreenSize size) {
    const std::optional<base::LiveRun> live = run::RunDirectory::live(run_);
    live_ = live.has_value();
    suspension_ = live ? live->suspension() : "";
    const std::optional<json> status = run::read_run_status(run_);
    if (!status) return std::nullopt;
    for (auto lines = metrics_.take(false); !lines.empty(); lines = metrics_.take(false)) {
      for (const run::LogLine& line : lines) add_loss(line.text);
    }
    std::vector<double> losses;
    for (const auto& [step, loss] : losses_) losses.push_back(loss);
    try {
      return watch_frame(headline(*status), *status, live_, losses, size);
    } catch (const json::exception& error) {
      run::refuse_foreign_status(run_, error);
    }
  }

 private:
  // Steps that a resume trains again replace the former ones.
  void add_loss(const std::string& line) {
    const json step = json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!step.is_object() || !step.contains("step") || !step.contains("loss")) return;
    if (!step["step"].is_number_integer() || !step["loss"].is_number()) return;
    losses_[step["step"].get<std::int64_t>()] = step["loss"].get<double>();
  }

  std::string headline(const json& status) const {
    const auto state = status.at("state").get<std::string>();
    if (!suspension_.empty()) return fmt::format("{}: {}", run_.string(), suspension_);
    if (live_) return fmt::format("{}: {}", run_.string(), state);
    if (state != "ended") return fmt::format("{}: its launcher is gone", run_.string());
    return fmt::format("{}: {}", run_.string(), end_line(run_.string(), status));
  }

  const fs::path run_;
  run::LogReader metrics_;
  std::map<std::int64_t, double> losses_;
  bool live_ = false;
  std::string suspension_;  // empty: it is not
};

void watch_on_screen(WatchedRun& run) {
  const base::StopSignals signals;  // a signal must not skip restoring the terminal
  FullScreen screen(STDIN_FILENO, STDOUT_FILENO);
  for (;;) {
    ScreenSize size = screen.size();
    if (size.rows > 1) --size.rows;
    std::vector<std::string> lines =
        run.frame(size).value_or(std::vector<std::string>{"the run is being prepared"});
    lines.resize(size.rows);
    lines.emplace_back(run.live() ? "q quits; the run continues" : "q quits");
    screen.draw(lines);
    const std::optional<char> key = screen.key(kDrawEvery);
    const bool quit = key == 'q' || key == 'Q' || key == '\x03' || key == '\x04';
    if (quit || signals.count() > 0) return;
  }
}

void watch_on_pipe(WatchedRun& run) {
  std::vector<std::string> printed;
  for (;;) {
    const auto lines = run.frame(kPipeSize);
    if (lines && *lines != printed) {
      printed = *lines;
      for (const std::string& line : printed) fmt::print("{}\n", line);
      fmt::print("\n");
      std::fflush(stdout);
    }
    if (!run.live()) return;
    ::poll(nullptr, 0, static_cast<int>(4 * kDrawEvery.count()));
  }
}

base::ExitCode watch_run(const fs::path& run) {
  if (!run::RunDirectory::live(run) && !run::read_run_status(run)) {
    run::refuse_run_not_started(run);
  }
  WatchedRun watched(run);
  if (::isatty(STDIN_FILENO) != 0 && ::isatty(STDOUT_FILENO) != 0) {
    watch_on_screen(watched);
  } else {
    watch_on_pipe(watched);
  }
  return base::ExitCode::done;
}

}  // namespace

void add_watch(CLI::App& cli, Command& command) {
  const auto run = std::make_shared<fs::path>();
  CLI::App* verb = cli.add_subcommand("watch", "show a run live on the full screen");
  add_run_argument(verb, *run)->description("its directory, or NAME; absent: list those here");
  verb->callback([run, &command] {
    command = [run] { return run->empty() ? list_runs("watch", false) : watch_run(*run); };
  });
}

}  // namespace strait::cli
