#pragma once

#include "launcher/base/errors.h"
#include "launcher/base/own_program.h"
#include "launcher/base/text.h"
#include "launcher/cli/compute_request.h"
#include "launcher/hosts/join_ticket.h"

// The verbs of `strait`, each with its flags in verb_NAME.cpp; resume is in verb_run.cpp. A new one
// is a function here, its source, and a line in strait_command.cpp. This header brings what every
// verb needs: text, exit codes. Flags are in command_line.h, which takes seconds to compile.
namespace strait::cli {

// The chosen verb; one of these is set when its flags have been parsed.
struct Command {
  std::function<base::ExitCode()> run;    // runs it
  std::optional<ComputeRequest> compute;  // what a program with libtorch is to do
};

void add_init(CLI::App& cli, Command& command);
void add_prepare(CLI::App& cli, Command& command);
void add_plan(CLI::App& cli, Command& command);
void add_probe(CLI::App& cli, Command& command);
void add_doctor(CLI::App& cli, Command& command);
void add_install(CLI::App& cli, Command& command);
void add_run(CLI::App& cli, Command& command);
void add_launch(CLI::App& cli, Command& command);
void add_join(CLI::App& cli, Command& command);
void add_resume(CLI::App& cli, Command& command);
void add_status(CLI::App& cli, Command& command);
void add_watch(CLI::App& cli, Command& command);
void add_logs(CLI::App& cli, Command& command);
void add_stop(CLI::App& cli, Command& command);
void add_eval(CLI::App& cli, Command& command);
void add_generate(CLI::App& cli, Command& command);
void add_chat(CLI::App& cli, Command& command);
void add_serve(CLI::App& cli, Command& command);
void add_export(CLI::App& cli, Command& command);
void add_checkpoint(CLI::App& cli, Command& command);
void add_compare(CLI::App& cli, Command& command);
void add_track(CLI::App& cli, Command& command);
void add_help(CLI::App& cli, Command& command);  // and explain, completion

// std::system_error: what was printed did not all get to stdout.
void flush_output();

// Functions that other verbs or tests call.

// Becomes the program of a host that joins a run with this ticket, or, without, with that in a file
// ("-": on stdin). Returns only by an exception.
[[noreturn]] void join_run(const hosts::JoinTicket& ticket);
[[noreturn]] void join_run(std::string token_file);

// Requests the launcher of a live run to finish its step, save and exit, or with `now` to exit at
// once. Waits until it has ended and prints where the checkpoint is. UserError: no launcher is live
// there, or it is still live after `timeout`.
base::ExitCode stop_run(const std::filesystem::path& run, bool now, std::chrono::seconds timeout);
// Removes a replica from a live run; its unfinished work is dropped. Waits until it has left.
// UserError: the run cannot continue without it.
base::ExitCode stop_replica(const std::filesystem::path& run, std::uint32_t replica,
                            std::chrono::seconds timeout);
// Lets a replica rejoin a live run. Waits until it has joined. UserError: it is active, or cannot
// rejoin.
base::ExitCode resume_replica(const std::filesystem::path& run, std::uint32_t replica,
                              std::chrono::seconds timeout);

// Prints the state of a run, or how it ended, from its files; does not connect to the run.
// UserError: there is no run.
base::ExitCode show_status(const std::filesystem::path& run, bool json, bool colors = false);

// What a key of recipes, a table of them, an exit code, a metric or a word means. UserError: it is
// none of them.
std::string explanation(const std::string& word);
// What the last of these words, which may be empty, can become. Reads runs/.
std::vector<std::string> completions(const CLI::App& cli, const std::vector<std::string>& words);

}  // namespace strait::cli
