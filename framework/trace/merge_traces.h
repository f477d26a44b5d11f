#pragma once

#include <filesystem>
#include <span>

#include "framework/trace/trace_error.h"

namespace strait::trace {

// Merges the trace files of several processes of one host, with the earliest event at time zero,
// and replaces `path` with the result. Processes keep their numbers and names; a number that two
// files share is replaced in the second. TraceError names the file that is missing or is not a
// trace.
void merge_traces(std::span<const std::filesystem::path> files, const std::filesystem::path& path);

}  // namespace strait::trace
