#pragma once

#include <ucontext.h>

#include <cstddef>
#include <memory>

namespace emulated {

// A thread of control that is left and entered by name. The first one of a process has no stack of
// its own. On x86-64 by hand: the portable way asks the kernel at every change.
class Fiber {
 public:
  Fiber() = default;
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // What it does when it is first entered; it must not return.
  void start(void (*work)());
  // Called on the running fiber.
  void leave_for(Fiber& other);
  void end_for(Fiber& other);

 private:
  void arrive();
  static void enter();

  static Fiber* running_;
  static Fiber* left_;
  std::unique_ptr<std::byte[]> stack_;
  void (*work_)() = nullptr;
  void* stack_pointer_ = nullptr;
  ucontext_t context_{};
  void* fake_stack_ = nullptr;  // AddressSanitizer's
  const void* bottom_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace emulated
