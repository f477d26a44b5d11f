#pragma once

#include <exception>
#include <string>

#include "framework/net/link_error.h"
#include "framework/store/store_error.h"
#include "framework/sync/sync_error.h"
#include "launcher/base/exit_code.h"

namespace strait::base {

// An error of the world in the words and the number that the user gets.
struct Failure {
  ExitCode code = ExitCode::internal;
  std::string text;  // one sentence
};

// The one place where the typed errors of all rooms become exit codes. What it does not know is a
// broken invariant of ours.
Failure describe_failure(const std::exception& error);

ExitCode exit_code_of(const store::StoreError& error);
ExitCode exit_code_of(const net::LinkError& error);
ExitCode exit_code_of(const sync::SyncError& error);

}  // namespace strait::base
