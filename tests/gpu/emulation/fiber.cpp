#include "tests/gpu/emulation/fiber.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

namespace emulated {

Fiber* Fiber::running_ = nullptr;
Fiber* Fiber::left_ = nullptr;

namespace {

constexpr std::size_t kStackBytes = 256 * 1024;

}  // namespace

#ifdef __x86_64__
// Saves what a function has to keep, and goes on where `load` was saved.
extern "C" void emulated_switch(void** save, void* load);
asm(R"(
.text
.globl emulated_switch
.type emulated_switch, @function
emulated_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emulated_switch, .-emulated_switch
)");
#endif

void Fiber::start(void (*work)()) {
  if (stack_ == nullptr) stack_ = std::make_unique<std::byte[]>(kStackBytes);
  bottom_ = stack_.get();
  size_ = kStackBytes;
  work_ = work;
  fake_stack_ = nullptr;
#ifdef __x86_64__
  auto top = reinterpret_cast<std::uintptr_t>(stack_.get()) + kStackBytes;
  top = top / 16 * 16;
  auto* const words = reinterpret_cast<void**>(top) - 8;  // six registers, enter(), nothing
  std::memset(words, 0, 8 * sizeof(void*));
  words[6] = reinterpret_cast<void*>(&Fiber::enter);
  stack_pointer_ = words;
#else
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack_.get();
  context_.uc_stack.ss_size = kStackBytes;
  context_.uc_link = nullptr;
  makecontext(&context_, &Fiber::enter, 0);
#endif
}

void Fiber::enter() {
  running_->arrive();
  running_->work_();
  std::abort();
}

void Fiber::arrive() {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(fake_stack_, &left_->bottom_, &left_->size_);
#endif
}

void Fiber::leave_for(Fiber& other) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(&fake_stack_, other.bottom_, other.size_);
#endif
  left_ = this;
  running_ = &other;
#ifdef __x86_64__
  emulated_switch(&stack_pointer_, other.stack_pointer_);
#else
  swapcontext(&context_, &other.context_);
#endif
  arrive();
}

void Fiber::end_for(Fiber& other) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(nullptr, other.bottom_, other.size_);
#endif
  left_ = this;
  running_ = &other;
#ifdef __x86_64__
  emulated_switch(&stack_pointer_, other.stack_pointer_);
#else
  setcontext(&other.context_);
#endif
  std::abort();
}

}  // namespace emulated
