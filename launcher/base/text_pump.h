#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <string>
#include <thread>

#include "framework/mutex.h"

namespace strait::base {

// Receives text. `passing` text is replaced by newer text and may be dropped if the reader is slow.
// Other text is kept.
class TextSink {
 public:
  TextSink() = default;
  TextSink(const TextSink&) = delete;
  TextSink& operator=(const TextSink&) = delete;
  virtual ~TextSink() = default;
  virtual void write(std::string text, bool passing) = 0;  // does not block
};

// Writes text to a descriptor on its own thread, so that a terminal that is slow, stopped with
// Ctrl-S or closed never blocks the run. Newer text replaces passing text. At most `limit` bytes of
// lasting text are queued, or one piece of any size. More is dropped, and a line reports how many.
// The caller owns the descriptor. Any thread may write.
class TextPump : public TextSink {
 public:
  enum class Form { plain, as_json };  // a reader of JSON gets nothing else
  static constexpr std::size_t kQueuedBytes = 1 << 20;
  // `failed` gets the errno of a write that failed, other than for a closed reader: once, on the
  // thread of the pump, which then writes no more.
  explicit TextPump(int descriptor, Form form = Form::plain, std::size_t limit = kQueuedBytes,
                    std::function<void(int error)> failed = {});
  ~TextPump() override;  // writes queued text for at most a second, JSON for ten

  void write(std::string text, bool passing) override STRAIT_EXCLUDES(mutex_);

 private:
  struct Piece {
    std::string text;
    bool passing = false;
  };
  void run() STRAIT_EXCLUDES(mutex_);
  bool write_out(const std::string& text);  // false: no more can be written
  bool give_up() const;

  const int descriptor_;
  const Form form_;
  const std::size_t limit_;
  const std::function<void(int error)> failed_;
  Mutex mutex_;
  Condition changed_;
  std::deque<Piece> waiting_ STRAIT_GUARDED_BY(mutex_);
  std::size_t waiting_bytes_ STRAIT_GUARDED_BY(mutex_) = 0;
  std::size_t dropped_ STRAIT_GUARDED_BY(mutex_) = 0;
  bool closed_ STRAIT_GUARDED_BY(mutex_) = false;  // no more can be written
  std::atomic<bool> ending_ = false;
  std::atomic<std::chrono::steady_clock::rep> deadline_ = 0;
  std::thread thread_;
};

}  // namespace strait::base
