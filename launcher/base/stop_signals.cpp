#include "launcher/base/stop_signals.h"

#include <unistd.h>

#include <cstring>

#include "launcher/base/errors.h"

namespace strait::base {
namespace {

constexpr int kStops[] = {SIGINT, SIGTERM, kAskSignal};

// Signal handlers can access only globals.
std::atomic<int> g_stop_requests{0};
std::atomic<bool> g_asked{false};
std::atomic<int> g_depth{0};
std::atomic<const char*> g_last_words{nullptr};  // null: stops are not announced
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free &&
              std::atomic<const char*>::is_always_lock_free);

void count_stop(int /*signal*/) { g_stop_requests.fetch_add(1); }

void ask_once(int /*signal*/) {
  int none = 0;
  if (g_stop_requests.compare_exchange_strong(none, 1)) g_asked = true;
}

// Calls only functions that are safe in a signal handler.
void say_and_end(int signal) {
  const char* const line = g_last_words;
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line, std::strlen(line));
  // A user has asked this run alone, no script around it.
  if (signal == kAskSignal) ::_exit(number(ExitCode::interrupted));
  std::signal(signal, SIG_DFL);
  std::raise(signal);  // delivered when this returns; scripts see that the signal ended the process
}

void dispose(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  ::sigaction(signal, &action, nullptr);
}

void mask_stops(int how) {
  sigset_t stops;
  ::sigemptyset(&stops);
  for (const int signal : kStops) ::sigaddset(&stops, signal);
  ::pthread_sigmask(how, &stops, nullptr);
}

}  // namespace

StopSignals::StopSignals() {
  if (g_depth.fetch_add(1) > 0) return;
  g_stop_requests = 0;
  g_asked = false;
  dispose(SIGINT, count_stop);
  dispose(SIGTERM, count_stop);
  dispose(kAskSignal, ask_once);
  dispose(SIGHUP, SIG_IGN);
  dispose(SIGPIPE, SIG_IGN);
  dispose(SIGXFSZ, SIG_IGN);
}

StopSignals::~StopSignals() {
  if (g_depth.fetch_sub(1) > 1) return;
  for (const int signal : {SIGHUP, SIGPIPE, SIGXFSZ}) dispose(signal, SIG_DFL);
  const bool announced = g_last_words != nullptr;
  for (const int signal : kStops) dispose(signal, announced ? say_and_end : SIG_DFL);
}

const StopSignals& StopSignals::for_good() {
  static const auto* const kSignals = new StopSignals;
  return *kSignals;
}

void StopSignals::announce(const char* line) {
  g_last_words = line;
  for (const int signal : kStops) {
    if (g_depth > 0) break;
    struct sigaction present {};
    ::sigaction(signal, nullptr, &present);
    if (present.sa_handler != SIG_IGN) dispose(signal, say_and_end);
  }
  mask_stops(SIG_UNBLOCK);
}

void StopSignals::hold() { mask_stops(SIG_BLOCK); }

const std::atomic<int>& StopSignals::count() const { return g_stop_requests; }

bool StopSignals::asked() { return g_asked; }

}  // namespace strait::base
