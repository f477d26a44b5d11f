#pragma once

#include <ucontext.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace strait::interleavings {

// Unwinds a fiber whose process has been killed. Not a std::exception: product code must not catch
// it.
struct Killed {};

// A thread of product code, run as a coroutine: std::thread makes one while fibers run
// (pthread_create is replaced), Condition and links give control away.
struct Fiber {
  enum class State { runnable, waiting, at_operation, finished };

  int process = 0;  // whose thread it is
  int index = 0;    // among the threads of its process; 0: the first
  State state = State::runnable;
  const void* waits_for = nullptr;
  bool killed = false;  // throws Killed where it waits next
  std::string error;    // what it ended by; empty: by a return

  std::function<void()> body;
  ucontext_t context{};
  // Exceptions in flight are a property of a thread; see Fibers::run().
  void* caught = nullptr;
  unsigned int uncaught = 0;
  std::unique_ptr<std::byte[]> stack;
};

// All fibers of one exploration, on one thread.
class Fibers {
 public:
  Fibers();
  ~Fibers();
  Fibers(const Fibers&) = delete;
  Fibers& operator=(const Fibers&) = delete;

  Fiber& spawn(int process, std::function<void()> body);
  // Runs a fiber until it waits, is at an operation, or has finished.
  void run(Fiber& fiber);
  // Runs all fibers of the process that can run, until none can.
  void settle(int process);
  // In the order in which they were made.
  const std::vector<Fiber*>& of(int process) const;

  // ---- called by fibers
  static Fiber* current();  // null: none runs
  static void wait_for(const void* condition);
  static void notify(const void* condition);
  // Gives control away in this state.
  static void yield(Fiber::State state);
  static void join(const Fiber& fiber);
  static Fiber* find(const void* fiber);  // null: not one of them
  static Fiber& spawn_thread(std::function<void()> body);

 private:
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<std::vector<Fiber*>> by_process_;
  ucontext_t scheduler_{};
};

}  // namespace strait::interleavings
