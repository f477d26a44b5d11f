#include "launcher/base/errors.h"

#include <cerrno>
#include <charconv>
#include <new>
#include <regex>

#include "framework/net/link_error.h"
#include "framework/store/store_error.h"
#include "framework/sync/sync_error.h"
#include "framework/trace/trace_file.h"
#include "launcher/base/text.h"

namespace strait::base {
namespace {

bool reports_missing_memory(const std::string& text) {
  return text.find("can't allocate memory") != std::string::npos ||
         text.find("out of memory") != std::string::npos;
}

// The size of a failed request, in the words of libtorch's allocators: "tried to allocate 4096
// bytes" on the CPU, "Tried to allocate 2.00 GiB" on a GPU. Empty: unknown.
std::string asked_for(const std::string& text) {
  static const std::regex kAsked("[Tt]ried to allocate ([0-9.]+) (bytes|[KMGT]iB)");
  std::smatch found;
  if (!std::regex_search(text, found, kAsked)) return "";
  const bool counted = found[2] == "bytes";
  std::uint64_t bytes = 0;
  const std::string number = found.str(1);
  const char* const end = number.data() + number.size();
  const auto [rest, error] = std::from_chars(number.data(), end, bytes);
  if (counted && (error != std::errc() || rest != end)) return "";
  return fmt::format(" ({} more could not be had)",
                     counted ? byte_text(bytes) : number + " " + found.str(2));
}

// "cannot rename runs/a: Permission denied", from "filesystem error: cannot rename: Permission
// denied [runs/a]". Errors of functions that only examine a file have no verb there.
std::string sentence_of(const std::filesystem::filesystem_error& error) {
  const std::string text = error.what();
  const std::string reason = error.code().message();
  const std::size_t verb = text.find("cannot ");
  const std::string doing = verb == text.npos
                                ? "cannot look at"
                                : text.substr(verb, text.find(": " + reason, verb) - verb);
  return fmt::format("{} {}: {}", doing, error.path1().string(), reason);
}

// libtorch appends a stack trace to its messages; users get the first line.
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// For errors of system calls, and of the standard library's file functions, which throw if no error
// code is passed.
ExitCode exit_code_of(const std::system_error& error) {
  const std::error_category& category = error.code().category();
  if (category == std::generic_category() || category == std::system_category()) {
    const int number = error.code().value();
    if (number == ENOSPC || number == EDQUOT) return ExitCode::storage_full;
    if (number == ENOMEM) return ExitCode::out_of_memory;
    if (number == EAGAIN) return ExitCode::bad_input;                           // see text_of()
    if (number == ENAMETOOLONG || number == ELOOP) return ExitCode::bad_input;  // of a path
    if (number == EACCES || number == EPERM) return ExitCode::bad_input;  // the user's to permit
  }
  return ExitCode::storage_io;
}

// Of all calls that throw this, only the start of a thread or process is refused temporarily.
std::string text_of(const std::system_error& error) {
  if (error.code() != std::errc::resource_unavailable_try_again) return error.what();
  return "this user may start no more threads or processes (ulimit -u, or the container's pids "
         "limit); allow more, or end some";
}

}  // namespace

ExitCode exit_code_of(const store::StoreError& error) {
  switch (error.kind()) {
    case store::StoreError::Kind::bad_input:
    case store::StoreError::Kind::denied:
    case store::StoreError::Kind::busy:
      return ExitCode::bad_input;
    case store::StoreError::Kind::storage_full:
      return ExitCode::storage_full;
    case store::StoreError::Kind::storage_io:
      return ExitCode::storage_io;
    case store::StoreError::Kind::corrupt:
      return ExitCode::corrupt;
    case store::StoreError::Kind::mismatch:
      return ExitCode::mismatch;
  }
  return ExitCode::internal;
}

ExitCode exit_code_of(const net::LinkError& error) {
  switch (error.kind()) {
    case net::LinkError::Kind::lost:
    case net::LinkError::Kind::aborted:
      return ExitCode::peer_lost;
    case net::LinkError::Kind::refused:
      return ExitCode::mismatch;
    case net::LinkError::Kind::fenced:
      return ExitCode::fenced;
    case net::LinkError::Kind::unauthenticated:
      return ExitCode::authentication;
    case net::LinkError::Kind::unusable:
      return ExitCode::bad_input;
  }
  return ExitCode::internal;
}

ExitCode exit_code_of(const sync::SyncError& error) {
  switch (error.kind()) {
    case sync::SyncError::Kind::setting:
      return ExitCode::bad_input;
    case sync::SyncError::Kind::fork:
      return ExitCode::mismatch;
    case sync::SyncError::Kind::membership_changed:
      return ExitCode::peer_lost;
    case sync::SyncError::Kind::corrupt:
      break;
  }
  return ExitCode::internal;
}

Failure describe_failure(const std::exception& error) {
  const std::string text = error.what();
  // The order matters: derived types come before their bases.
  if (const auto* known = dynamic_cast<const UserError*>(&error)) return {known->code(), text};
  if (const auto* known = dynamic_cast<const store::StoreError*>(&error)) {
    return {exit_code_of(*known), text};
  }
  if (const auto* known = dynamic_cast<const net::LinkError*>(&error)) {
    return {exit_code_of(*known), text};
  }
  if (const auto* known = dynamic_cast<const sync::SyncError*>(&error)) {
    return {exit_code_of(*known), text};
  }
  if (dynamic_cast<const InputError*>(&error) != nullptr) return {ExitCode::bad_input, text};
  if (dynamic_cast<const trace::TraceError*>(&error) != nullptr) {
    return {ExitCode::storage_io, text};
  }
  if (dynamic_cast<const ProtocolError*>(&error) != nullptr) {
    return {ExitCode::internal, "protocol error: " + text};
  }
  if (const auto* known = dynamic_cast<const std::filesystem::filesystem_error*>(&error)) {
    return {exit_code_of(*known), sentence_of(*known)};
  }
  if (const auto* known = dynamic_cast<const std::system_error*>(&error)) {
    return {exit_code_of(*known), text_of(*known)};
  }
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr || reports_missing_memory(text)) {
    return {ExitCode::out_of_memory, "out of memory" + asked_for(text) +
                                         "; a smaller train.micro_batch, model.recompute = "
                                         "\"layer\" or more pipeline.stages need less"};
  }
  return {ExitCode::internal, "broken invariant: " + first_line(text), true};
}

Failure describe_failed_save(const std::exception& error) {
  Failure failure = describe_failure(error);
  const auto* known = dynamic_cast<const store::StoreError*>(&error);
  using Kind = store::StoreError::Kind;
  constexpr std::array kOfInput = {Kind::bad_input, Kind::denied, Kind::busy};
  if (known != nullptr && std::ranges::find(kOfInput, known->kind()) != kOfInput.end()) {
    failure.code = ExitCode::storage_io;
  }
  return failure;
}

}  // namespace strait::base
