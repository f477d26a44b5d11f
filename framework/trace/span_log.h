#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "framework/mutex.h"
#include "framework/trace/trace_error.h"

namespace strait::trace {

// Nanoseconds of the steady clock: one time line for all processes of a host.
using Nanoseconds = std::int64_t;
Nanoseconds now();

// One rectangle of the picture. The texts are not copied: they must be string literals.
struct Span {
  const char* name = "";      // "forward"
  const char* category = "";  // "compute", "wait", "codec", "network"
  int row = 0;                // a line of the picture, named with name_row
  Nanoseconds start = 0;
  Nanoseconds end = 0;
  const char* argument = nullptr;  // "micro_batch"; null: the span has none
  std::int64_t value = 0;
};

// The spans of one process, bounded in memory: when full, the oldest are overwritten and counted,
// so that a long run keeps its latest minutes. Any thread may record; that costs a lock held for
// one copy of 56 bytes, and never memory.
class SpanLog {
 public:
  // `process_name` heads the picture ("stage 1.0"); `process` must differ between the processes
  // whose files are to be merged.
  SpanLog(std::string process_name, int process, std::size_t capacity = 1U << 16U);

  void name_row(int row, std::string name) STRAIT_EXCLUDES(mutex_);
  void record(const Span& span) STRAIT_EXCLUDES(mutex_);

  // Oldest first, a copy.
  std::vector<Span> spans() const STRAIT_EXCLUDES(mutex_);
  std::uint64_t overwritten() const STRAIT_EXCLUDES(mutex_);

  // Replaces `path` with the trace of this process, in the format that Perfetto and
  // chrome://tracing open. Throws TraceError. Recording goes on meanwhile.
  void write(const std::filesystem::path& path) const STRAIT_EXCLUDES(mutex_);

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
