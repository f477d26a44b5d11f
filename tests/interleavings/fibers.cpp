#include "tests/interleavings/fibers.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <utility>

namespace __cxxabiv1 {
struct __cxa_eh_globals {
  void* caught;
  unsigned int uncaught;
};
extern "C" __cxa_eh_globals* __cxa_get_globals() noexcept;
}  // namespace __cxxabiv1

namespace strait::interleavings {
namespace {

constexpr std::size_t kStackBytes = std::size_t{256} << 10;

Fibers* live = nullptr;
Fiber* running = nullptr;

// Stacks are reused: one execution after another needs as many.
std::vector<std::unique_ptr<std::byte[]>>& spare_stacks() {
  static std::vector<std::unique_ptr<std::byte[]>> stacks;
  return stacks;
}

std::unique_ptr<std::byte[]> take_stack() {
  auto& spare = spare_stacks();
  if (spare.empty()) return std::unique_ptr<std::byte[]>(new std::byte[kStackBytes]);
  std::unique_ptr<std::byte[]> stack = std::move(spare.back());
  spare.pop_back();
  return stack;
}

void run_body() {
  Fiber& fiber = *running;
  try {
    fiber.body();
  } catch (const Killed&) {
    fiber.error = "killed";
  } catch (const std::exception& error) {
    fiber.error = error.what();
  }
  fiber.body = nullptr;
  Fibers::notify(&fiber);
  Fibers::yield(Fiber::State::finished);
  std::abort();  // never run again
}

}  // namespace

Fibers::Fibers() { live = this; }

Fibers::~Fibers() {
  for (auto& fiber : fibers_) {
    // Left in the middle, its objects would never be destroyed.
    if (fiber->state != Fiber::State::finished) std::abort();
    spare_stacks().push_back(std::move(fiber->stack));
  }
  live = nullptr;
}

Fiber& Fibers::spawn(int process, std::function<void()> body) {
  fibers_.push_back(std::make_unique<Fiber>());
  Fiber& fiber = *fibers_.back();
  fiber.process = process;
  const auto at = static_cast<std::size_t>(process);
  if (by_process_.size() <= at) by_process_.resize(at + 1);
  fiber.index = static_cast<int>(by_process_[at].size());
  by_process_[at].push_back(&fiber);
  fiber.body = std::move(body);
  fiber.stack = take_stack();
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack.get();
  fiber.context.uc_stack.ss_size = kStackBytes;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, run_body, 0);
  return fiber;
}

void Fibers::run(Fiber& fiber) {
  Fiber* const before = std::exchange(running, &fiber);
  auto* const globals = __cxxabiv1::__cxa_get_globals();
  const auto own = *globals;
  *globals = {fiber.caught, fiber.uncaught};
  fiber.state = Fiber::State::runnable;
  swapcontext(&scheduler_, &fiber.context);
  fiber.caught = globals->caught;
  fiber.uncaught = globals->uncaught;
  *globals = own;
  running = before;
}

void Fibers::settle(int process) {
  bool any = true;
  while (any) {
    any = false;
    // By index: a fiber that runs may spawn others.
    for (std::size_t i = 0; i < of(process).size(); ++i) {
      Fiber& fiber = *of(process)[i];
      if (fiber.state != Fiber::State::runnable) continue;
      run(fiber);
      any = true;
    }
  }
}

const std::vector<Fiber*>& Fibers::of(int process) const {
  static const std::vector<Fiber*> none;
  const auto at = static_cast<std::size_t>(process);
  return at < by_process_.size() ? by_process_[at] : none;
}

Fiber* Fibers::current() { return running; }

void Fibers::yield(Fiber::State state) {
  Fiber& fiber = *running;
  fiber.state = state;
  swapcontext(&fiber.context, &live->scheduler_);
}

void Fibers::wait_for(const void* condition) {
  Fiber& fiber = *running;
  fiber.waits_for = condition;
  yield(Fiber::State::waiting);
  fiber.waits_for = nullptr;
  if (fiber.killed) throw Killed();
}

void Fibers::notify(const void* condition) {
  for (const auto& fiber : live->fibers_) {
    if (fiber->state == Fiber::State::waiting && fiber->waits_for == condition) {
      fiber->state = Fiber::State::runnable;
    }
  }
}

// Not by wait_for(): destructors join, and must not throw.
void Fibers::join(const Fiber& other) {
  while (other.state != Fiber::State::finished) {
    running->waits_for = &other;
    yield(Fiber::State::waiting);
  }
}

Fiber* Fibers::find(const void* fiber) {
  if (live == nullptr) return nullptr;
  const auto found = std::ranges::find_if(
      live->fibers_, [&](const std::unique_ptr<Fiber>& one) { return one.get() == fiber; });
  return found == live->fibers_.end() ? nullptr : found->get();
}

Fiber& Fibers::spawn_thread(std::function<void()> body) {
  return live->spawn(running->process, std::move(body));
}

}  // namespace strait::interleavings

// std::thread comes here. In front of the C library's, as a program's symbols are.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*start)(void*), void* argument) {
  using strait::interleavings::Fibers;
  if (Fibers::current() != nullptr) {
    auto& fiber = Fibers::spawn_thread([start, argument] { start(argument); });
    *thread = reinterpret_cast<pthread_t>(&fiber);
    return 0;
  }
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto real = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  return real(thread, attributes, start, argument);
}

extern "C" int pthread_join(pthread_t thread, void** result) {
  using strait::interleavings::Fibers;
  if (const auto* fiber = Fibers::find(reinterpret_cast<const void*>(thread))) {
    Fibers::join(*fiber);
    return 0;
  }
  using Join = int (*)(pthread_t, void**);
  static const auto real = reinterpret_cast<Join>(dlsym(RTLD_NEXT, "pthread_join"));
  return real(thread, result);
}

// Time stands still on fibers: what they do must not depend on the machine's load.
extern "C" int clock_gettime(clockid_t clock, timespec* now) {
  if (strait::interleavings::Fibers::current() != nullptr) {
    *now = {1'000'000, 0};
    return 0;
  }
  return static_cast<int>(syscall(SYS_clock_gettime, clock, now));
}
