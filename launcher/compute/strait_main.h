#pragma once

#include "launcher/plugin/plugin.h"

// The two programs as functions, for programs of one's own that have parts linked in. A program
// that calls strait_main() needs one that calls strait_stage_main(), under the name strait-stage
// and in the same folder, with the same parts.
namespace strait {

using OfferParts = void (*)(Extensions&);

// What `strait` and `strait-stage` do. `offer` is called once, before anything is planned; its
// partitions are named as in pipeline.partition = "plugin:#NAME". Null: no parts. The result is the
// exit code.
int strait_main(int argc, char** argv, OfferParts offer);
int strait_stage_main(int argc, char** argv, OfferParts offer);

// Starts the program again where its verb computes with the threads of a stage and the environment
// does not say how long they spin (base::set_thread_waits()). strait_main() calls this; a program
// that calls it before libraries are initialised does not wait for them twice.
void bound_thread_waits(int argc, char** argv);

// Ends the process with what is buffered written. Returning from main() would also undo the start
// of every library: libtorch takes 70 ms to remove its operators one by one.
[[noreturn]] void end_program(int code);

}  // namespace strait
