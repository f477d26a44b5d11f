#pragma once

#include <termios.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "launcher/console/status_text.h"

namespace strait::console {

// A terminal's other screen: what stood on the terminal comes back with the destructor. Keys arrive
// one by one and unseen, Ctrl-C among them as '\x03'. One thread, one object per terminal.
class FullScreen {
 public:
  FullScreen(int input, int output);  // both are terminals
  FullScreen(const FullScreen&) = delete;
  FullScreen& operator=(const FullScreen&) = delete;
  ~FullScreen();

  ScreenSize size() const;
  // In place of what was drawn before; lines fit the size.
  void draw(const std::vector<std::string>& lines);
  // Waits for a key, at most so long. '\x04', as of Ctrl-D, when the terminal is gone.
  std::optional<char> key(std::chrono::milliseconds limit);

 private:
  void put(const std::string& text);

  const int input_;
  const int output_;
  termios before_{};
};

}  // namespace strait::console
