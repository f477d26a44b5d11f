#pragma once

namespace strait::base {

// How both programs end, for people and for scripts. The numbers are a promise.
enum class ExitCode : int {
  done = 0,
  bad_input = 10,
  mismatch = 11,  // of recipe, plan, build or checkpoint
  authentication = 12,
  peer_lost = 20,
  stalled = 21,
  fenced = 22,  // a newer generation of the run exists
  storage_full = 30,
  storage_io = 31,
  corrupt = 32,
  numeric = 40,
  out_of_memory = 50,
  internal = 70,
  interrupted = 130,  // the user asked to leave at once
};

constexpr int number(ExitCode code) { return static_cast<int>(code); }

// In words, for sentences; null for a number that is none of ours.
constexpr const char* meaning(ExitCode code) {
  switch (code) {
    case ExitCode::done:
      return "done";
    case ExitCode::bad_input:
      return "bad input";
    case ExitCode::mismatch:
      return "recipe or checkpoint mismatch";
    case ExitCode::authentication:
      return "authentication";
    case ExitCode::peer_lost:
      return "peer lost";
    case ExitCode::stalled:
      return "stalled";
    case ExitCode::fenced:
      return "fenced: a newer generation exists";
    case ExitCode::storage_full:
      return "storage full";
    case ExitCode::storage_io:
      return "storage I/O";
    case ExitCode::corrupt:
      return "checkpoint corrupt";
    case ExitCode::numeric:
      return "numeric";
    case ExitCode::out_of_memory:
      return "out of memory";
    case ExitCode::internal:
      return "internal error";
    case ExitCode::interrupted:
      return "interrupted";
  }
  return nullptr;
}

}  // namespace strait::base
