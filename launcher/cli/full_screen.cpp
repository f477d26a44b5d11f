#include "launcher/cli/full_screen.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <span>

#include "launcher/base/read_all.h"

namespace strait::cli {
namespace {

constexpr const char* kAlternateScreen = "\x1b[?1049h\x1b[?25l";  // and no cursor
constexpr const char* kRestoreScreen = "\x1b[?25h\x1b[?1049l";
constexpr char kTerminalClosed = '\x04';

}  // namespace

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

}  // namespace strait::cli
