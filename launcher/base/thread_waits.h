#pragma once

namespace strait::base {

// Bounds in the environment how long the threads of OpenMP spin before they sleep when they wait
// for each other, in programs that are executed after this. By default they spin for milliseconds.
// Where a core is also wanted by others (another program, our own codec and net threads), those
// that compute then wait for those that spin. Where a core is free, a short spin saves a wake-up.
// The runtime reads this when it is loaded. Call before any thread starts. Returns false and
// changes nothing if the environment sets it already.
bool set_thread_waits();

}  // namespace strait::base
