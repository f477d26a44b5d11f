#pragma once

#include <functional>

namespace strait::store {

// This test program carries its own write, fsync, rename, fallocate, remove, stat, pread, readdir
// and flock, which pass every call on to the kernel until a fault is armed; so each system call of
// a save can fail or be the last one. `any` stands for those that change something.
enum class SystemCall { write, fsync, rename, fallocate, remove, stat, pread, readdir, flock, any };

struct SystemFault {
  SystemCall call = SystemCall::any;
  int after = 0;      // this many calls succeed first
  int error = 0;      // errno of the failing call; 0: the process dies instead
  bool once = false;  // later calls succeed again
};

// Runs `work` with the fault armed (it may throw) and returns how many calls of the kind were made.
int with_fault(const SystemFault& fault, const std::function<void()>& work);

// Runs `work` in a child process that dies at the given call. True when it got to its end instead.
bool survives_death_at(int call, const std::function<void()>& work);

// Calls `before` before every call that changes something while `work` runs.
void with_slow_calls(const std::function<void()>& before, const std::function<void()>& work);

// Every write takes at most this many bytes while `work` runs.
void with_short_writes(int bytes, const std::function<void()>& work);

}  // namespace strait::store
