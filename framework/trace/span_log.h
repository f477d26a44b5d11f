#pragma once

#include <cstddef>
#include <limits>
#include <vector>

#include "framework/mutex.h"
#include "framework/trace/trace_file.h"

namespace strait::trace {

// Nanoseconds of the steady clock, which all processes of a host share.
using Nanoseconds = std::int64_t;
Nanoseconds now();

inline constexpr int kRowStep = 10;  // between rows of SpanLog::add_row

// One rectangle of the picture. Texts are not copied, so they must be string literals.
struct Span {
  const char* name = "";      // "forward"
  const char* category = "";  // "compute", "wait", "encode", "send", "receive", "decode", "sync"
  int row = 0;                // a line of the picture, named with name_row
  Nanoseconds start = 0;
  Nanoseconds end = 0;
  const char* argument = nullptr;  // "micro_batch"; null: the span has none
  std::int64_t value = 0;
  std::int64_t bytes = 0;  // 0: not shown
  // Of a message, below 2^53 and the same at its sender and receiver, which an arrow connects. 0:
  // the span is of no message.
  std::uint64_t message = 0;
  bool arrives = false;  // the message ends here; otherwise it starts here
};

// The spans of one process, bounded in memory. When full, the oldest are overwritten and counted,
// so that a long run keeps its latest minutes. Any thread may record. A record costs a lock held
// for one copy of 80 bytes, and never allocates.
class SpanLog {
 public:
  // `process_name` is the title of the picture ("stage 1.0"). `process` must differ between
  // processes whose files are merged.
  SpanLog(std::string process_name, int process, std::size_t capacity = 1U << 16U);

  void name_row(int row, std::string name) STRAIT_EXCLUDES(mutex_);
  // A row of its own, after all others. Returns its number, one of kRowStep apart, so that
  // merge_traces can put rows between.
  int add_row(std::string name) STRAIT_EXCLUDES(mutex_);
  void record(const Span& span) STRAIT_EXCLUDES(mutex_);

  // A copy, oldest first.
  std::vector<Span> spans() const STRAIT_EXCLUDES(mutex_);
  std::uint64_t overwritten() const STRAIT_EXCLUDES(mutex_);

  // Replaces `path` with the trace of this process, in the format of Perfetto and chrome://tracing,
  // with what merge_traces needs to align the clocks of several hosts. Throws TraceError. Recording
  // continues meanwhile. With `newest`, only as many spans.
  void write(const std::filesystem::path& path,
             std::size_t newest = std::numeric_limits<std::size_t>::max()) const
      STRAIT_EXCLUDES(mutex_);

 private:
  struct Row {
    int row;
    std::string name;
  };

  const std::string process_name_;
  const int process_;
  const std::size_t capacity_;
  mutable Mutex mutex_;
  std::vector<Row> rows_ STRAIT_GUARDED_BY(mutex_);
  std::vector<Span> ring_ STRAIT_GUARDED_BY(mutex_);
  std::uint64_t recorded_ STRAIT_GUARDED_BY(mutex_) = 0;
};

}  // namespace strait::trace
