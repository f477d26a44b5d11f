#pragma once

namespace strait::process {

// Says in the environment how the threads of OpenMP wait for each other in programs that are
// executed after this: they sleep. They would spin for milliseconds otherwise, and where a core is
// also wanted by others (another program, our own codec and net threads), those that compute wait
// for those that spin. The runtime reads this when it is loaded. False: the environment says it
// already, and that stays. Before any thread.
bool set_thread_waits();

}  // namespace strait::process
