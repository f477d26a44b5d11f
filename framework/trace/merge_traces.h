#pragma once

#include <filesystem>
#include <span>

#include "framework/trace/trace_error.h"

namespace strait::trace {

// Merges the trace files of several processes, with the earliest event at time zero, and replaces
// `path` with the result. Clocks of different hosts are aligned by their messages (align_clocks.h),
// else by what the system's clocks showed. Each sending row gets a row of its link after it, with
// the time from the start of send to the arrival, for which no message before occupied it.
// Processes keep their numbers and names; a number that two files share is replaced in the second.
// TraceError names the file that is missing or is not a trace.
void merge_traces(std::span<const std::filesystem::path> files, const std::filesystem::path& path);

}  // namespace strait::trace
