#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "framework/trace/trace_file.h"

namespace strait::trace {

// A message between processes on two clocks: each end's time by its own clock.
struct ClockedMessage {
  std::size_t from = 0;  // clocks, by index
  std::size_t to = 0;
  double sent = 0;
  double received = 0;
};

// What to add to the times of each clock, so that all agree with the first clock that messages in
// both directions connect them to, perhaps over others. As NTP does, it takes the fastest message
// there to take as long as the fastest one back; it errs by at most half of their sum. `guesses`,
// one per clock, are what is added where no messages connect two clocks.
std::vector<double> align_clocks(const std::vector<double>& guesses,
                                 std::span<const ClockedMessage> messages);

// Merges the trace files of several processes, with the earliest event at time zero, and replaces
// `path` with the result. Clocks of different hosts are aligned by their messages (align_clocks()),
// else by what the system's clocks showed. Each sending row gets a row of its link after it, with
// the time from the start of send to the arrival, for which no message before occupied it.
// Processes keep their numbers and names; a number that two files share is replaced in the second.
// TraceError names the file that is missing or is not a trace.
void merge_traces(std::span<const std::filesystem::path> files, const std::filesystem::path& path);

}  // namespace strait::trace
