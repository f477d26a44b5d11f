#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <exception>
#include <functional>
#include <stdexcept>

namespace strait {

// Another process of a test, killed with it: a fork that does `work` and ends. The constructor
// returns once the work has called report_ready().
class ChildProcess {
 public:
  explicit ChildProcess(const std::function<void(int ready)>& work) {
    std::array<int, 2> ready{};
    if (::pipe(ready.data()) != 0) throw std::runtime_error("no pipe");
    pid_ = ::fork();
    if (pid_ < 0) throw std::runtime_error("no process");
    if (pid_ == 0) run(work, ready[1]);
    ::close(ready[1]);
    const auto got = ::read(ready[0], &reported_, 1);
    ::close(ready[0]);
    if (got == 1) return;
    kill();
    throw std::runtime_error("the child process ended before it was ready");
  }
  ~ChildProcess() { kill(); }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // For the work, on what it was given.
  static void report_ready(int ready, unsigned char code = 0) {
    if (::write(ready, &code, 1) != 1) throw std::runtime_error("the parent process is gone");
  }

  void kill() {
    if (pid_ == 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  pid_t pid() const { return pid_; }
  unsigned char reported() const { return reported_; }

 private:
  [[noreturn]] static void run(const std::function<void(int ready)>& work, int ready) {
    try {
      work(ready);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "a child process of the test: %s\n", error.what());
      ::_exit(1);
    }
    ::_exit(0);
  }

  pid_t pid_ = 0;
  unsigned char reported_ = 0;
};

}  // namespace strait
