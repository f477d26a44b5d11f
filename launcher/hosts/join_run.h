#pragma once

#include "launcher/base/errors.h"
#include "launcher/hosts/join_ticket.h"

namespace strait::hosts {

// The host's end of Rendezvous: joins a run and runs one agent after another as the launcher says,
// until the run has ended. A launcher that is lost is waited for, because it may come back with the
// run's next generation; the agent decides by itself how long it goes on without.
//
// SIGINT or SIGTERM: the agent leaves the run when it has saved; twice: at once. Returns the exit
// code of the run; `interrupted` if this host left it before, so that an engine does not take the
// host for done. UserError: the launcher cannot be reached, or does not accept the ticket.
base::ExitCode join_run(const JoinTicket& ticket);

}  // namespace strait::hosts
