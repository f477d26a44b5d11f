#pragma once

#include <termios.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "launcher/cli/status_text.h"

namespace strait::cli {

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

}  // namespace strait::cli
