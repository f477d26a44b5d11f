#pragma once

#include <filesystem>
#include <span>

#include "framework/trace/trace_error.h"

namespace strait::trace {

// Puts the trace files of several processes of one host into one, earliest event at time zero, and
// replaces `path` with it. Each process keeps its number and name; two files with the same number
// are kept apart under new ones. Throws TraceError naming the file that is missing or is no trace.
void merge_traces(std::span<const std::filesystem::path> files, const std::filesystem::path& path);

}  // namespace strait::trace
