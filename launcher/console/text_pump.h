#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <deque>
#include <string>
#include <thread>

#include "framework/mutex.h"
#include "launcher/console/console.h"

namespace strait::console {

// Carries text to a descriptor on a thread of its own, so that a terminal that is slow, stopped
// with Ctrl-S or closed never holds up the run. Passing text gives way to newer text; of lasting
// text at most `limit` bytes wait, more is left out and counted in a line that says so. The
// descriptor stays the caller's. Any thread may write.
class TextPump : public TextSink {
 public:
  explicit TextPump(int descriptor, std::size_t limit = 1 << 20);
  ~TextPump() override;  // tries for a second to bring out what waits, then gives up

  void write(std::string text, bool passing) override STRAIT_EXCLUDES(mutex_);

 private:
  struct Piece {
    std::string text;
    bool passing = false;
  };
  void run() STRAIT_EXCLUDES(mutex_);
  bool bring_out(const std::string& text);  // false: nobody reads any more
  bool give_up() const;

  const int descriptor_;
  const std::size_t limit_;
  Mutex mutex_;
  Condition changed_;
  std::deque<Piece> waiting_ STRAIT_GUARDED_BY(mutex_);
  std::size_t waiting_bytes_ STRAIT_GUARDED_BY(mutex_) = 0;
  std::size_t left_out_ STRAIT_GUARDED_BY(mutex_) = 0;
  bool closed_ STRAIT_GUARDED_BY(mutex_) = false;  // the reader is gone
  std::atomic<bool> ending_ = false;
  std::atomic<std::chrono::steady_clock::rep> last_moment_ = 0;
  std::thread thread_;
};

}  // namespace strait::console
