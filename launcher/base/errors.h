#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <exception>
#include <system_error>

#include "framework/fields/fields.h"

namespace strait::net {
class LinkError;
}
namespace strait::store {
class StoreError;
}
namespace strait::sync {
class SyncError;
}

// How both programs fail: exit codes, the errors that carry one, and the mapping from the errors of
// all rooms to exit codes.
namespace strait::base {

using fields::MessageError;

// Exit status of `strait` and `strait-stage`. Scripts rely on the numbers: append only.
enum class ExitCode : std::uint8_t {
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
  interrupted = 130,  // second interrupt: the user does not want to wait for a checkpoint
};

constexpr int number(ExitCode code) { return static_cast<int>(code); }

// Short text of a code for use within a sentence; null for an unknown number.
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

// An error that is reported to the user as one sentence ("strait: …") and ends the program with
// `code`. what() states what failed, where, what was expected, and what to do.
class UserError : public std::runtime_error {
 public:
  UserError(ExitCode code, const std::string& sentence)
      : std::runtime_error(sentence), code_(code) {}
  // A sentence with values, as fmt::format takes it.
  template <class... Values>
  requires(sizeof...(Values) > 0)
      UserError(ExitCode code, fmt::format_string<Values...> sentence, Values&&... values)
      : UserError(code, fmt::format(sentence, std::forward<Values>(values)...)) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

// An error as it is reported: exit code and one sentence.
struct Failure {
  ExitCode code = ExitCode::internal;
  std::string text;
  bool defect = false;  // a bug of this program: the exception has an unknown type
};

// Classifies any exception. This is the only place where typed errors become exit codes. An
// exception of unknown type is reported as a broken invariant (internal error).
Failure describe_failure(const std::exception& error);

// The same for a checkpoint that could not be written. Saving reads no input of the user, so a path
// that is missing, is not a folder, or already holds a checkpoint is a storage error.
Failure describe_failed_save(const std::exception& error);

ExitCode exit_code_of(const store::StoreError& error);
ExitCode exit_code_of(const net::LinkError& error);
ExitCode exit_code_of(const sync::SyncError& error);

}  // namespace strait::base
