#include "launcher/base/text_pump.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <string_view>
#include <utility>

namespace strait::base {
namespace {

using Clock = std::chrono::steady_clock;

// After poll() reports room, a write of this size does not block, neither to a pipe nor to a
// terminal.
constexpr std::size_t kWriteBytes = 512;
constexpr auto kDrainTimeout = std::chrono::seconds(1);
// Longer, because a program waits for the last event.
constexpr auto kJsonDrainTimeout = std::chrono::seconds(10);
constexpr int kPollMilliseconds = 50;

}  // namespace

TextPump::TextPump(int descriptor, Form form, std::size_t limit,
                   std::function<void(int error)> failed)
    : descriptor_(descriptor),
      form_(form),
      limit_(limit),
      failed_(std::move(failed)),
      thread_([this] { run(); }) {}

TextPump::~TextPump() {
  const auto timeout = form_ == Form::as_json ? kJsonDrainTimeout : kDrainTimeout;
  deadline_ = (Clock::now() + timeout).time_since_epoch().count();
  {
    const MutexLock lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void TextPump::write(std::string text, bool passing) {
  {
    const MutexLock lock(mutex_);
    if (closed_) return;
    if (!waiting_.empty() && waiting_.back().passing) {
      waiting_bytes_ -= waiting_.back().text.size();
      waiting_.pop_back();
    }
    if (!waiting_.empty() && waiting_bytes_ + text.size() > limit_) {
      ++dropped_;
      return;
    }
    waiting_bytes_ += text.size();
    waiting_.push_back({std::move(text), passing});
  }
  changed_.notify_all();
}

void TextPump::run() {
  // A closed reader must be an error code here, whatever the program does with SIGPIPE.
  sigset_t broken_pipe;
  ::sigemptyset(&broken_pipe);
  ::sigaddset(&broken_pipe, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &broken_pipe, nullptr);
  // Passing text that was not written yet is obsolete, so the new text takes its place.
  while (true) {
    std::string text;
    {
      const MutexLock lock(mutex_);
      while (waiting_.empty() && !ending_) changed_.wait(mutex_);
      if (waiting_.empty()) return;
      text = std::move(waiting_.front().text);
      waiting_bytes_ -= text.size();
      waiting_.pop_front();
      if (waiting_.empty() && dropped_ > 0) {
        const std::size_t lines = std::exchange(dropped_, 0);
        text += form_ == Form::as_json
                    ? fmt::format("{{\"event\":\"dropped\",\"lines\":{}}}\n", lines)
                    : fmt::format("({} lines dropped: the output was not read)\n", lines);
      }
    }
    if (write_out(text)) continue;
    const MutexLock lock(mutex_);
    closed_ = true;
    waiting_.clear();
    waiting_bytes_ = 0;
  }
}

bool TextPump::give_up() const {
  return ending_ && Clock::now().time_since_epoch().count() >= deadline_;
}

bool TextPump::write_out(const std::string& text) {
  for (std::string_view rest = text; !rest.empty();) {
    if (give_up()) return false;
    pollfd room{descriptor_, POLLOUT, 0};
    if (::poll(&room, 1, kPollMilliseconds) == 0) continue;
    if ((room.revents & (POLLERR | POLLHUP | POLLNVAL)) != 0) return false;
    const ssize_t written = ::write(descriptor_, rest.data(), std::min(rest.size(), kWriteBytes));
    if (written > 0) {
      rest.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR && errno != EAGAIN) {
      if (errno != EPIPE && failed_) failed_(errno);
      return false;
    }
  }
  return true;
}

}  // namespace strait::base
