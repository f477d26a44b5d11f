#pragma once

#include "launcher/base/errors.h"
#include "launcher/hosts/agent_job.h"
#include "launcher/hosts/join_ticket.h"

namespace strait::hosts {

// This program's file, or /proc/self/exe if a newer build has replaced the file meanwhile.
std::string stage_program_here();

// Runs the agent of a host for one generation of a run: connects to the launcher, starts processes
// on request and reports their ends. Returns when the launcher ends it, or after job.hold seconds
// without contact; all processes that it started have ended then. SIGINT or SIGTERM once asks the
// launcher to save and end it, twice ends it at once (`interrupted`). Logs to spdlog's default
// logger.
base::ExitCode run_agent(const AgentJob& job);

// The host's end of Rendezvous: joins a run and runs one agent after another as the launcher says,
// until the run has ended. A launcher that is lost is waited for, because it may come back with the
// run's next generation; the agent decides by itself how long it goes on without.
//
// SIGINT or SIGTERM: the agent leaves the run when it has saved; twice: at once. Returns the exit
// code of the run; `interrupted` if this host left it before, so that an engine does not take the
// host for done. UserError: the launcher cannot be reached, or does not accept the ticket.
base::ExitCode join_run(const JoinTicket& ticket);

}  // namespace strait::hosts
