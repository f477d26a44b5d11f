#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>

#include <cerrno>
#include <cstdio>

#include "launcher/base/read_all.h"
#include "launcher/base/run_file_names.h"
#include "launcher/base/stop_signals.h"
#include "launcher/cli/command_line.h"
#include "launcher/cli/run_list.h"
#include "launcher/cli/status_text.h"
#include "launcher/cli/verbs.h"
#include "launcher/run/run_directory.h"
#include "launcher/run/run_status.h"

namespace strait::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr auto kDrawEvery = std::chrono::milliseconds(500);
// Of output that is no terminal.
constexpr ScreenSize kPipeSize = {120, 60};

constexpr const char* kAlternateScreen = "\x1b[?1049h\x1b[?25l";  // and no cursor
constexpr const char* kRestoreScreen = "\x1b[?25h\x1b[?1049l";
constexpr char kTerminalClosed = '\x04';

// The alternate screen of a terminal; the destructor restores the previous content. Keys are read
// one by one without echo, Ctrl-C as '\x03'. One thread, one object per terminal.
class FullScreen {
 public:
  FullScreen(int input, int output);  // both are terminals
  FullScreen(const FullScreen&) = delete;
  FullScreen& operator=(const FullScreen&) = delete;
  ~FullScreen();

  ScreenSize size() const;
  // Replaces the previous picture. The lines must fit the size.
  void draw(const std::vector<std::string>& lines);
  // Waits at most this long for a key. '\x04' (Ctrl-D): the terminal is closed.
  std::optional<char> key(std::chrono::milliseconds limit);

 private:
  void put(const std::string& text);

  const int input_;
  const int output_;
  termios before_{};
};

FullScreen::FullScreen(int input, int output) : input_(input), output_(output) {
  ::tcgetattr(input_, &before_);
  termios plain = before_;
  plain.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG);
  plain.c_cc[VMIN] = 1;
  plain.c_cc[VTIME] = 0;
  ::tcsetattr(input_, TCSANOW, &plain);
  put(kAlternateScreen);
}

FullScreen::~FullScreen() {
  put(kRestoreScreen);
  ::tcsetattr(input_, TCSANOW, &before_);
}

ScreenSize FullScreen::size() const {
  winsize size{};
  if (::ioctl(output_, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {};
  return {size.ws_col, size.ws_row};
}

void FullScreen::draw(const std::vector<std::string>& lines) {
  std::string text = "\x1b[H";  // from the upper left corner
  for (std::size_t i = 0; i < lines.size(); ++i) {
    // Each line erases the rest of the previous one. There is no line feed after the last line,
    // because it would scroll.
    text += (i == 0 ? "" : "\r\n") + lines[i] + "\x1b[K";
  }
  put(text + "\x1b[J");
}

std::optional<char> FullScreen::key(std::chrono::milliseconds limit) {
  pollfd waited{input_, POLLIN, 0};
  // A signal such as SIGWINCH ends the wait early; then the screen is only drawn sooner.
  if (::poll(&waited, 1, static_cast<int>(limit.count())) <= 0) return std::nullopt;
  char key = 0;
  const ssize_t got = ::read(input_, &key, 1);
  if (got == 1) return key;
  return got == 0 || errno != EINTR ? std::optional(kTerminalClosed) : std::nullopt;
}

void FullScreen::put(const std::string& text) {
  // If the terminal is closed, the next key() reports it.
  base::write_all(output_, std::as_bytes(std::span(text)));
}

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
    try {
      return watch_frame(headline(*status), *status, live_, losses_, size);
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
    const auto number = step["step"].get<std::int64_t>();
    const auto again = std::ranges::lower_bound(steps_, number) - steps_.begin();
    steps_.resize(static_cast<std::size_t>(again));
    losses_.resize(steps_.size());
    steps_.push_back(number);
    losses_.push_back(step["loss"].get<double>());
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
  std::vector<std::int64_t> steps_;  // that have losses; ascending
  std::vector<double> losses_;       // theirs
  bool live_ = false;
  std::string suspension_;  // empty: it is not
};

void watch_on_screen(WatchedRun& run, bool colors) {
  const base::StopSignals signals;  // a signal must not skip restoring the terminal
  FullScreen screen(STDIN_FILENO, STDOUT_FILENO);
  for (;;) {
    ScreenSize size = screen.size();
    if (size.rows > 1) --size.rows;
    std::vector<std::string> lines =
        run.frame(size).value_or(std::vector<std::string>{"the run is being prepared"});
    lines.resize(size.rows);
    for (std::string& line : lines) line = in_tones(line, colors);
    lines.emplace_back(run.live() ? "q quits; the run continues" : "q quits");
    screen.draw(lines);
    const std::optional<char> key = screen.key(kDrawEvery);
    const bool quit = key == 'q' || key == 'Q' || key == '\x03' || key == '\x04';
    if (quit || signals.count() > 0) return;
  }
}

void watch_on_pipe(WatchedRun& run, bool colors) {
  std::vector<std::string> printed;
  for (;;) {
    const auto lines = run.frame(kPipeSize);
    if (lines && *lines != printed) {
      printed = *lines;
      for (const std::string& line : printed) fmt::print("{}\n", in_tones(line, colors));
      fmt::print("\n");
      std::fflush(stdout);
    }
    if (!run.live()) return;
    ::poll(nullptr, 0, static_cast<int>(4 * kDrawEvery.count()));
  }
}

base::ExitCode watch_run(const fs::path& run, bool colors) {
  if (!run::RunDirectory::live(run) && !run::read_run_status(run)) {
    run::refuse_run_not_started(run);
  }
  WatchedRun watched(run);
  if (::isatty(STDIN_FILENO) != 0 && ::isatty(STDOUT_FILENO) != 0) {
    watch_on_screen(watched, colors);
  } else {
    watch_on_pipe(watched, colors);
  }
  return base::ExitCode::done;
}

}  // namespace

void add_watch(CLI::App& cli, Command& command) {
  struct Options {
    fs::path run;
    std::string color = "auto";
  };
  const auto options = std::make_shared<Options>();
  CLI::App* verb = cli.add_subcommand("watch", "show a run live on the full screen");
  add_run_argument(verb, options->run)
      ->description("its directory, or NAME; absent: list those here");
  add_color(verb, options->color);
  verb->callback([options, &command] {
    command.run = [options] {
      return options->run.empty() ? list_runs("watch", false)
                                  : watch_run(options->run, base::wants_colors(options->color));
    };
  });
}

}  // namespace strait::cli
