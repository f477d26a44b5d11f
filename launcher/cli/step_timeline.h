#pragma once

#include <istream>

#include "launcher/recipe/plan.h"

namespace strait::cli {

// What the processes of a run do in one step, for the report.
struct StepTimeline {
  struct Span {
    std::string lane;  // "compute", "encode", "send", "link", "receive", "decode", "sync"
    std::string name;  // "forward", "wait"
    double start = 0;  // seconds since the step began
    double seconds = 0;
    std::int64_t micro_batch = -1;  // -1: of none
  };
  struct Row {
    std::string process;  // "stage 1.0"
    std::vector<Span> spans;
  };
  std::int64_t step = 0;  // 0: of no particular step
  double seconds = 0;
  std::vector<Row> rows;
};

// From a merged trace (trace.json, an event per line): of the last steps that all processes have
// recorded, the one of median duration. Reads in bounded memory; lines that are no events are
// skipped. Without rows: the trace has no whole step. Call with a file at its start.
StepTimeline measured_step(std::istream& trace);

// {"step", "seconds", "names", "rows": [{"process", "lanes": {lane: [[start, duration, name,
// micro-batch]]}}]}, in microseconds and with indices into names. Of very many spans the shortest
// are left out and counted in "left_out".
nlohmann::json timeline_figure(const StepTimeline& timeline);

}  // namespace strait::cli
